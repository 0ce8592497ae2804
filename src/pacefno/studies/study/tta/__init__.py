"""``pacefno study tta``: test-time adaptation over step counts and rates, accuracy beside cost."""
