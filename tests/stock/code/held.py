import os


def run(input, config):
    parent = open(f"/proc/{os.getppid()}/cmdline").read().split("\0")
    print("fork of a zygote" if "zygote" in parent else "no fork")
    return sum(input)
