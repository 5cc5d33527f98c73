"""The models: one package per option in conf/model."""
