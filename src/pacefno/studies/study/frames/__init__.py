"""How well frames are found, over the whole group."""
