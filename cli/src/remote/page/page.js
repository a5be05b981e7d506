// The picture of a machine, renewed every two seconds from report.json. All text is set as text.
"use strict";

const INTERVAL_MS = 2000;
const HISTORY_LENGTH = 150;
const COLOURS = ["#3366cc", "#dc3912", "#109618", "#ff9900", "#990099", "#0099c6", "#dd4477",
  "#66aa00", "#b82e2e", "#316395", "#994499", "#22aa99", "#8b7700"];
const FRAME_BYTES = 4096;
const SVG = "http://www.w3.org/2000/svg";
const history = new Map();
let before = null;

const byId = (id) => document.getElementById(id);

function svg(name, attributes) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (bytes >= 1024 && unit < units.length - 1) { bytes /= 1024; unit += 1; }
  return `${bytes.toFixed(unit === 0 ? 0 : 1)} ${units[unit]}`;
}

// A pod that was started again counts from 0.
function since(now, old) {
  const of = (pod) => pod ?? 0;
  return of(now) >= of(old) ? of(now) - of(old) : of(now);
}

// What the tickets of running pods are worth, through the currencies that they are in.
function wanted(report) {
  const currencies = new Map(report.currencies.map((it) => [it.name, it]));
  const sums = new Map();
  const runs = (pod) => pod.state === "running" || pod.state === "ending";
  const base = (name) => name === "" ? "base" : name;
  for (const pod of report.pods.filter(runs)) {
    let ticket = { amount: pod.tickets ?? 0, payer: base(pod.currency) };
    for (let depth = 0; depth <= currencies.size; depth += 1) {
      const was = sums.get(ticket.payer) ?? 0;
      sums.set(ticket.payer, was + ticket.amount);
      const next = currencies.get(ticket.payer);
      if (was !== 0 || next === undefined) break;
      ticket = { amount: next.tickets, payer: base(next.currency) };
    }
  }
  return report.pods.map((pod) => {
    if (!runs(pod)) return 0;
    let share = 1;
    let ticket = { amount: pod.tickets ?? 0, payer: base(pod.currency) };
    for (let depth = 0; depth <= currencies.size; depth += 1) {
      share *= ticket.amount / (sums.get(ticket.payer) || 1);
      const next = currencies.get(ticket.payer);
      if (next === undefined) break;
      ticket = { amount: next.tickets, payer: base(next.currency) };
    }
    return share;
  });
}

function drawShares(report, got, worth) {
  const rows = report.pods.map((pod, index) => {
    const row = document.createElement("div");
    row.className = "row";
    const name = document.createElement("span");
    name.textContent = pod.pod;
    const bar = svg("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none" });
    const colour = COLOURS[index % COLOURS.length];
    bar.append(svg("rect", { x: 0, y: 0, width: 100 * got[index], height: 10, fill: colour }));
    bar.append(svg("rect", { x: 100 * worth[index] - .2, y: 0, width: .4, height: 10, fill: "currentColor" }));
    const number = document.createElement("span");
    number.className = "number";
    number.textContent = `${(100 * got[index]).toFixed(1)} %`;
    row.append(name, bar, number);
    return row;
  });
  byId("shares").replaceChildren(...rows);
}

function drawHistory(report, cpu) {
  const most = Math.max(1, ...[...history.values()].flat(), ...cpu);
  report.pods.forEach((pod, index) => {
    const line = history.get(pod.pod) ?? [];
    line.push(cpu[index]);
    if (line.length > HISTORY_LENGTH) line.shift();
    history.set(pod.pod, line);
  });
  const lines = report.pods.map((pod, index) => {
    const line = history.get(pod.pod);
    const start = HISTORY_LENGTH - line.length;
    const point = (value, at) => `${(600 * (start + at) / (HISTORY_LENGTH - 1)).toFixed(1)},` +
      `${(118 - 114 * value / most).toFixed(1)}`;
    return svg("polyline", { points: line.map(point).join(" "), stroke: COLOURS[index % COLOURS.length] });
  });
  byId("history").replaceChildren(...lines);
}

function drawPods(report, cpu, old, seconds) {
  const rows = report.pods.map((pod, index) => {
    const was = old.get(pod.pod) ?? {};
    const rate = (key) => seconds > 0 ? (since(pod[key], was[key]) / seconds).toFixed(0) : "-";
    const traffic = pod.traffic;
    const state = pod.status === undefined ? pod.state : `${pod.state} (${pod.status})`;
    const cells = [pod.pod, state, pod.tickets ?? "-", `${(100 * cpu[index]).toFixed(1)} %`,
      size((pod.frames ?? 0) * FRAME_BYTES), size((pod.limit ?? 0) * FRAME_BYTES), pod.processes.length,
      traffic ? size(traffic.received_bytes) : "-", traffic ? size(traffic.sent_bytes) : "-",
      rate("kernel_calls"), rate("traps"), rate("exceptions"), rate("interrupts"), pod.restarts];
    const row = document.createElement("tr");
    for (const text of cells) {
      const cell = document.createElement("td");
      cell.textContent = String(text);
      row.append(cell);
    }
    return row;
  });
  byId("pods").replaceChildren(...rows);
}

function draw(report) {
  const old = new Map((before ?? { pods: [] }).pods.map((pod) => [pod.pod, pod]));
  const used = report.pods.map((pod) => since(pod.time_ns, (old.get(pod.pod) ?? {}).time_ns));
  const clocks = report.pods.map((pod) => since(pod.now_ns, (old.get(pod.pod) ?? {}).now_ns));
  const elapsed = Math.max(0, ...clocks);
  const all = used.reduce((sum, it) => sum + it, 0);
  const got = used.map((it) => all > 0 ? it / all : 0);
  const cpu = used.map((it) => elapsed > 0 ? it / elapsed : 0);
  byId("machine").textContent = report.machine;
  drawShares(report, got, wanted(report));
  if (before !== null) drawHistory(report, cpu);
  drawPods(report, cpu, old, before === null ? 0 : elapsed / 1e9);
  before = report;
}

async function renew() {
  const state = byId("state");
  try {
    const answer = await fetch("report.json", { cache: "no-store" });
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    draw(await answer.json());
    state.textContent = `running, renewed at ${new Date().toLocaleTimeString()}`;
    state.className = "";
  } catch (error) {
    state.textContent = `the machine does not answer (${error.message})`;
    state.className = "gone";
  }
  setTimeout(renew, INTERVAL_MS);
}

renew();
