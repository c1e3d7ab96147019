"""Payloads as bytes between an HTTP worker and a model's process: a small head and raw buffers, never pickle."""
