"""Neural operators that keep their accuracy when the input is translated, boosted or rotated."""
