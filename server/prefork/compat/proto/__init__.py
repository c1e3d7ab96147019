"""`seldon_core.proto`: Seldon's messages without protobuf."""
