"""Models: the contract, the exact table model, Hugging Face models, served models and models of the user's own."""
