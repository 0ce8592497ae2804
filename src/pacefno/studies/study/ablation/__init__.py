"""``pacefno study ablation``: what each part of the method earns."""
