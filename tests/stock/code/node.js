const fs = require("node:fs");

function run(input, config) {
	console.log(fs.readFileSync("/proc/cmdline", "utf8"));
	return input.reduce((a, b) => a + b, 0);
}
