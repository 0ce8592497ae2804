"""``pacefno study lielac``: the frame of least energy around a frozen operator, after LieLAC (Shumaylov et al., ICLR 2025)."""
