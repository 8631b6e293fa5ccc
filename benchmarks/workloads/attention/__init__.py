"""Attention: training shapes, decoding from caches, packed documents, latent attention."""
