function run(input, config) {
	return input.reduce((a, b) => a + b, 0);
}
