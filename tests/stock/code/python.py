import numpy
import pandas


def run(input, config):
    print(open("/proc/cmdline").read())
    frame = pandas.DataFrame({"n": input})
    return int(frame.n.sum() + numpy.zeros(3).sum())
