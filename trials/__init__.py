"""The bundled GPT trainer: tensor, pipeline and data parallel; needs torch and the standard library only."""
