// What a sample of a peer in Node.js is made with: bench/meter.py and bench/peers/modes.py, for those.
//
// A peer is a module that calls `main({open, send, sendMany, work})` and is run as `node FILE MODE ORDER`, with the
// folder of its packages in TASKHARBOR_BENCH_PACKAGES. `open(order, package)` returns what the other three get; `work`
// gets the job as well, and may return before its last job has run.

import { spawn } from "node:child_process";
import { existsSync, readFileSync, readdirSync, writeSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const BATCH = 1_000;
const WARM = 5; // picks that are not counted
const PAUSES = [10, 30]; // milliseconds between two picks
const PIPE = "TASKHARBOR_BENCH_PIPE";
const TICKS = 100; // of a second, in /proc

const now = () => Number(process.hrtime.bigint()) / 1e9; // the clock of Python's perf_counter
const say = (sample) => writeSync(1, JSON.stringify(sample) + "\n");

function cpuOfTree(pid) {
  if (!pid || !existsSync(`/proc/${pid}`)) return 0;
  const children = new Map(), ticks = new Map();
  for (const name of readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
    try {
      const text = readFileSync(`/proc/${name}/stat`, "utf8");
      const fields = text.slice(text.lastIndexOf(")") + 2).split(" "); // the name in parentheses may hold spaces
      children.set(+fields[1], [...(children.get(+fields[1]) ?? []), +name]);
      ticks.set(+name, fields.slice(11, 15).reduce((sum, each) => sum + +each, 0));
    } catch {} // it has ended
  }
  let total = 0;
  for (const todo = [pid]; todo.length; ) {
    const each = todo.pop();
    total += ticks.get(each) ?? 0;
    todo.push(...(children.get(each) ?? []));
  }
  return total / TICKS;
}

function watch(order) {
  const server = cpuOfTree(order.server), cpu = process.cpuUsage(), wall = now();
  return (jobs) => {
    const seconds = now() - wall, { user, system } = process.cpuUsage(cpu);
    return { jobs, wall: seconds, cpu: (user + system) / 1e6, server: cpuOfTree(order.server) - server };
  };
}

function* batches(jobs) {
  for (let start = 0; start < jobs; start += BATCH) yield Math.min(BATCH, jobs - start);
}

// From the start of the first job to that of the last one; then the process ends, whatever else it does.
function counting(order) {
  let ran = 0, stop;
  return async () => {
    ran += 1;
    if (ran === 1) stop = watch(order);
    else if (ran === order.jobs) {
      say(stop(order.jobs - 1));
      process.exit(0);
    }
  };
}

async function latency(peer, order) {
  const worker = spawn(process.execPath, [process.argv[1], "serve", JSON.stringify({ ...order, server: 0 })], {
    stdio: ["ignore", "ignore", "inherit", "pipe"],
    env: { ...process.env, [PIPE]: "3" },
  });
  const told = worker.stdio[3][Symbol.asyncIterator](), latencies = [];
  for (let number = 0; number < order.jobs + WARM; number += 1) {
    await new Promise((done) => setTimeout(done, PAUSES[0] + Math.random() * (PAUSES[1] - PAUSES[0])));
    const asked = now();
    await peer.send();
    const { value, done } = await told.next();
    if (done) throw new Error("the worker ended before it ran the job");
    if (number >= WARM) latencies.push(value.readDoubleLE(0) - asked);
  }
  worker.kill("SIGKILL");
  return { jobs: order.jobs, latencies };
}

function tellingPicks() {
  const pipe = +process.env[PIPE];
  return async () => {
    const moment = Buffer.alloc(8);
    moment.writeDoubleLE(now());
    writeSync(pipe, moment);
  };
}

// What went wrong is the last line.
export const main = (peer) =>
  run(peer).catch((error) => {
    console.error(error.stack);
    console.error(String(error));
    process.exit(1);
  });

async function run({ open, send, sendMany, work }) {
  const [mode, order] = [process.argv[2], JSON.parse(process.argv[3])];
  const packages = createRequire(`${process.env.TASKHARBOR_BENCH_PACKAGES}/`);
  const imported = (name) => import(pathToFileURL(packages.resolve(name)));
  const opened = await open(order, imported);
  const peer = { send: () => send(opened), sendMany: (jobs) => sendMany(opened, jobs) };
  if (mode === "process") {
    for (const size of batches(order.jobs)) await peer.sendMany(size);
    await work(opened, counting(order));
  } else if (mode === "serve") await work(opened, tellingPicks());
  else {
    let sample;
    if (mode === "latency") sample = await latency(peer, order);
    else {
      await peer.send();
      const stop = watch(order);
      if (mode === "enqueue-one") for (let each = 0; each < order.jobs; each += 1) await peer.send();
      else for (const size of batches(order.jobs)) await peer.sendMany(size);
      sample = stop(order.jobs);
    }
    say(sample);
    process.exit(0);
  }
}
