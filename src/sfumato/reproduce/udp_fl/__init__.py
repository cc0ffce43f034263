"""UDP-FL (Feng et al. 2024): every law of noise with the accounting that was published, and with what is proven."""
