def run(input, config):
    return sum(input)
