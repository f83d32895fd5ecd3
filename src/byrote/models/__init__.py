"""Back ends: the exact table model, Hugging Face causal models, OpenAI-compatible chat endpoints."""
