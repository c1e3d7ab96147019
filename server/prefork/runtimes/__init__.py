"""Saved models without code: who recognises them, loads them and asks them. One file a runtime, registered in `table`.

A framework is imported only when a model of its kind is loaded; to recognise a file takes none.
"""
