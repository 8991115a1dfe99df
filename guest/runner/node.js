// Waiting runner of the node template.
//
// Started by hutch-init before the snapshot, says that it waits and sleeps in
// one read.  A request makes it run the code's run(input, config) and answer
// on the same channel (runner.h).  The channel is a low descriptor: node
// itself makes those close-on-exec, so no child inherits it.
//
// With an express lane (lane_call.h) ARM makes it rehearse a run and wait there;
// a run that came by the lane is answered by the lane, unless init adopted it.
//
// run may be a function declaration or a const, exports.run, module.exports,
// or an export of an ES module; it may be async.

"use strict";

const fs = require("node:fs");
const vm = require("node:vm");
const path = require("node:path");
const util = require("node:util");
const crypto = require("node:crypto");
const { createRequire } = require("node:module");

const CHANNEL = 15;
const RESULT_BYTES_MAX = 48 << 10;
const FILE = "<run>";
const PROGRESS = 1, WAITING = 2, RESULT = 3, FAILED = 4, NOT_JSON = 5,
	TOO_LARGE = 6, ARMED = 7;
const RUN = 1, ARM = 2;
const CLOSED = 0, TOLD = 2, ADOPTED = 3, BOUND = 5;
const WAS_UNBOUND = 4; // in the list of a run's parts

const writeSync = fs.writeSync, readSync = fs.readSync;
const stringify = JSON.stringify, parse = JSON.parse;
const isFinite = Number.isFinite;
const kill = process.reallyExit.bind(process);

function send(kind, code, text) {
	const body = Buffer.from(text || "");
	const head = Buffer.alloc(12);
	head.writeUInt32LE(kind, 0);
	head.writeUInt32LE(code, 4);
	head.writeUInt32LE(body.length, 8);
	let data = Buffer.concat([head, body]);
	while (data.length)
		data = data.subarray(writeSync(CHANNEL, data));
}

// ---- random numbers --------------------------------------------------------

// V8 seeded Math.random before the snapshot, so all its clones would share
// it: xorshift128+ with a seed of this sandbox takes its place.
function reseed() {
	const s = new BigUint64Array(2);
	crypto.getRandomValues(s);
	let a = s[0] | 1n, b = s[1];
	const mask = (1n << 64n) - 1n;
	const block = new Float64Array(64);
	let at = block.length;
	function refill() {
		for (let i = 0; i < block.length; i++) {
			let x = a;
			const y = b;
			a = y;
			x ^= (x << 23n) & mask;
			x ^= x >> 17n;
			b = x ^ y ^ (y >> 26n);
			block[i] = Number(((b + y) & mask) >> 11n) /
				9007199254740992;
		}
		at = 0;
	}
	const random = { random() {
		if (at === block.length)
			refill();
		return block[at++];
	} }.random;
	Object.defineProperty(Math, "random", { value: random,
		writable: true, configurable: true, enumerable: false });
}

// The wall clock was set after node had started and kept its time.
function resetTimeOrigin() {
	Object.defineProperty(performance, "timeOrigin", {
		value: Date.now() - performance.now(), writable: false,
		configurable: true, enumerable: true });
}

// What clones of one snapshot must not share.
function renew() {
	reseed();
	resetTimeOrigin();
}

// ---- the user's code -------------------------------------------------------

const requireUser = createRequire("/workspace/run.js");

function isModuleError(e) {
	return e instanceof SyntaxError &&
		/import statement|Unexpected token 'export'|import\.meta|await is only valid/
			.test(e.message);
}

function pick(found, exported) {
	for (const f of [found, exported && exported.run, exported,
		exported && exported.default])
		if (typeof f === "function")
			return f;
	return undefined;
}

function importUser(name) {
	if (name.startsWith("."))
		return import(path.resolve("/workspace", name));
	return import(name.includes(":") || name.startsWith("/") ? name
		: requireUser.resolve(name));
}

function loadScript(code) {
	const fn = vm.compileFunction(
		code + "\n;return typeof run === 'function' ? run : undefined;",
		["exports", "require", "module", "__filename", "__dirname"],
		{ filename: FILE, importModuleDynamically: importUser });
	const module = { exports: {}, id: FILE, filename: FILE };
	const found = fn.call(module.exports, module.exports, requireUser,
		module, FILE, "/workspace");
	return pick(found, module.exports);
}

async function loadModule(code) {
	const m = new vm.SourceTextModule(code, { identifier: FILE,
		importModuleDynamically: importUser,
		initializeImportMeta(meta) { meta.url = "file:///workspace/run.mjs"; },
	});
	await m.link(async (name) => {
		const ns = await importUser(name);
		const keys = Object.keys(ns);
		return new vm.SyntheticModule(keys, function () {
			for (const k of keys)
				this.setExport(k, ns[k]);
		}, { identifier: name });
	});
	await m.evaluate();
	return pick(m.namespace.run, m.namespace.default);
}

async function load(code) {
	let run;
	try {
		run = loadScript(code);
	} catch (e) {
		if (!isModuleError(e))
			throw e;
		run = await loadModule(code);
	}
	if (!run)
		throw new TypeError(
			"the code must define a function run(input, config)");
	return run;
}

// What JSON.stringify would alter without a word is refused.
function strict(key, value) {
	const v = this[key];
	if (typeof value === "number" && !isFinite(value))
		throw new TypeError(`${value} is not a JSON number`);
	if (v instanceof Map || v instanceof Set)
		throw new TypeError(
			`a ${v.constructor.name} is not JSON; convert it first`);
	return value;
}

function encode(result) {
	let text;
	try {
		text = stringify(result, strict);
	} catch (e) {
		return [NOT_JSON, "run() returned what JSON cannot hold: " +
			String(e && e.message).slice(0, 400)];
	}
	if (text === undefined && result !== undefined)
		return [NOT_JSON, "run() returned what JSON cannot hold: a " +
			typeof result];
	text = text === undefined ? "null" : text;
	// A lone surrogate has no UTF-8: as an escape it stays what it is.
	if (!text.isWellFormed())
		text = text.replace(/[\ud800-\udfff]/g, (c, i) => {
			const n = c.charCodeAt(0);
			const pair = n < 0xdc00 ? text.charCodeAt(i + 1)
				: text.charCodeAt(i - 1);
			const isPaired = n < 0xdc00
				? pair >= 0xdc00 && pair <= 0xdfff
				: pair >= 0xd800 && pair <= 0xdbff;
			return isPaired ? c : "\\u" + n.toString(16);
		});
	const n = Buffer.byteLength(text);
	if (n > RESULT_BYTES_MAX)
		return [TOO_LARGE, `the result is ${n} bytes of JSON, the limit ` +
			`is ${RESULT_BYTES_MAX}: write a file in place of it`];
	return [RESULT, text];
}

function showError(e) {
	let text;
	try {
		text = e instanceof Error || util.types.isNativeError(e)
			? util.inspect(e) : "Uncaught " + util.inspect(e);
	} catch {
		text = "Uncaught exception";
	}
	// The user's code ends where the runner's begins.
	const lines = text.split("\n").filter((l) => !l.includes(__filename) &&
		!/^\s+at .*\(?node:(vm|internal)/.test(l));
	try {
		writeSync(2, lines.join("\n") + "\n");
	} catch { /* closed by the user's code */ }
}

let isTold = false, lane = null, isByLane = false;

function tell(kind, code, text) {
	if (isTold)
		return;
	isTold = true;
	if (isByLane && lane.finish(kind, code, text || "") !== ADOPTED)
		kill(0);
	send(kind, code, text);
	// Init ends this process; nothing of the user's runs any more.
	try {
		readSync(CHANNEL, Buffer.alloc(1));
	} finally {
		kill(0);
	}
}

function fail(e) {
	showError(e);
	tell(FAILED, 1);
}

async function serve(code, input, config) {
	const run = await load(code);
	return encode(await run(parse(input), parse(config)));
}

// ---- waiting ---------------------------------------------------------------

let have = 0; // bytes of `request`

// A request's kind and parts.
function wait() {
	let buffer = request, need = 24, sizes = null;
	while (have < need || !sizes) {
		if (have < need) {
			const n = readSync(CHANNEL, buffer, have,
				buffer.length - have);
			if (n === 0)
				kill(0); // init gave this runner up
			have += n;
		}
		if (!sizes && have >= 24) {
			sizes = [4, 8, 12, 16].map((o) => buffer.readUInt32LE(o));
			need = 24 + sizes.reduce((a, b) => a + b);
			if (need > buffer.length) {
				const more = Buffer.alloc(need);
				buffer.copy(more, 0, 0, have);
				buffer = more;
			}
		}
	}
	let at = 24;
	const kind = buffer.readUInt32LE(0);
	const parts = sizes.map((n) => buffer.toString("utf8", at, at += n));
	buffer.copy(request, 0, at, have); // the next one, when it is there
	have -= at;
	return [kind, parts];
}

// ARM: the parts of a run that came by the lane, or null.
async function arm() {
	renew();
	for (const code of [LANE_REHEARSAL, "null.x", LANE_REHEARSAL]) {
		const [source, input, config] = lane.rehearse(code, "[1,2,3]");
		let text = "";
		try {
			text = (await serve(source, input, config))[1];
		} catch (e) {
			showError(e);
		}
		lane.finish(text ? RESULT : FAILED, 0, text);
	}
	send(ARMED, 0);
	let got;
	do {
		got = lane.wait();
		if (got === TOLD)
			kill(0);
		// What was seeded before BIND is seeded again.
		if (got === BOUND || got[WAS_UNBOUND])
			renew();
	} while (got === BOUND);
	return got === CLOSED ? null : got;
}

// Waits for a run.
async function nextRun() {
	for (;;) {
		const [kind, parts] = wait();
		if (kind === RUN) {
			renew();
			return parts;
		}
		const got = lane && kind === ARM ? await arm() : null;
		if (got) {
			isByLane = true;
			return got;
		}
		send(WAITING, 0);
	}
}

const request = Buffer.alloc(256 << 10);

const LANE_REHEARSAL = "async function run(a, b) { console.log('rehearsal'); " +
	"return { n: a.length, s: JSON.stringify(a) }; }";

// A whole run whose answer goes nowhere: what it needs is compiled after.
async function rehearse() {
	const list = "x".repeat(2000).split("");
	await serve("async function run(a, b) { return { n: a.length, " +
		"s: JSON.stringify(a).slice(0, 20) }; }", stringify(list), "null");
	await serve("export const run = (a) => a;", "[1]", "null");
	await serve("null.x", "1", "1").catch((e) => util.inspect(e));
	util.format("%s %j %o", "a", { b: 1 }, [1, { c: 2 }]);
	Buffer.from("aGk=", "base64").toString("hex");
	crypto.createHash("sha256").update("x").digest("hex");
}

async function main() {
	send(PROGRESS, 0, "node: started");
	if (process.argv[3] === "lane") {
		const library = { exports: {} };
		process.dlopen(library, path.join(__dirname, "lane.node"));
		lane = library.exports;
		const rc = lane.open();
		if (rc)
			throw new Error(`lane: errno ${-rc}`);
	}
	await rehearse();
	void process.stdout;
	void process.stderr;
	if (global.gc)
		global.gc();
	send(WAITING, 0);
	const [code, input, config, env] = await nextRun();
	for (const pair of env.split("\0")) {
		const eq = pair.indexOf("=");
		if (eq > 0)
			process.env[pair.slice(0, eq)] = pair.slice(eq + 1);
	}
	process.argv.length = 1;
	process.on("uncaughtException", fail);
	process.on("unhandledRejection", fail);
	// Nothing is left to wait for, and run() has not settled.
	process.on("beforeExit", () =>
		fail(new Error("the promise of run() never settles")));
	// process.exit() ends the process; its code is the answer.
	const [kind, text] = await serve(code, input, config);
	tell(kind, kind === RESULT ? 0 : 1, text);
}

main().catch(fail);
