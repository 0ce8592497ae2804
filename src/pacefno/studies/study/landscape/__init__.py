"""``pacefno study landscape``: the energy of test-time adaptation over a cut of the frame coordinates."""
