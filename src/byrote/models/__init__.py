"""Models: the contract, Hugging Face models, served models and models of the user's own."""
