"""Mixture of experts: the layer, the model around it, and how it generates."""
