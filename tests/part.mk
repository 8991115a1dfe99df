# What is in the folders of tests/; the system tests are scripts.
-include $(wildcard tests/*/part.mk)
