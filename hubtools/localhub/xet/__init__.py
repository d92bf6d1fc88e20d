"""Xet storage over HTTP: what the default `hf_xet` client uploads to and downloads from."""
