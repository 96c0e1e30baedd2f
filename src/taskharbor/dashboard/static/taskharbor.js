// Keeps pages fresh, draws charts, asks before a change, listens to keys. Pages can be read without it.
// Text from the server is set as text, never as HTML.
const $ = (query, within = document) => within.querySelector(query);
const $$ = (query, within = document) => [...within.querySelectorAll(query)];
const main = () => $("#main");
const stored = (key, value) => {
  try { return value === undefined ? localStorage.getItem(key) : localStorage.setItem(key, value); } catch { return null; }
};

// What is said: one polite region, and a line that goes away
function say(text, bad = false) {
  const line = document.createElement("p");
  line.textContent = text;
  line.classList.toggle("bad", bad);
  $("#said").append(line);
  setTimeout(() => line.remove(), bad ? 9000 : 5000);
}
document.body.addEventListener("said", (event) => { unselect(); say(event.detail.value); refresh(true); });

// Requests
document.body.addEventListener("htmx:configRequest", (event) => { event.detail.headers["X-TaskHarbor"] = "1"; });
// htmx inserts nothing by itself (`responseHandling` in base.html): an answer may quote a name, and htmx would carry out markup in it
const isHtml = (type) => (type || "").startsWith("text/html");
document.body.addEventListener("htmx:beforeSwap", ({ detail }) => {
  detail.shouldSwap = detail.xhr.status === 200 && detail.requestConfig.elt.hasAttribute("hx-target") && isHtml(detail.xhr.getResponseHeader("content-type"));
});
document.body.addEventListener("htmx:responseError", (event) => {
  if (event.detail.requestConfig.verb === "get") return;
  let text = event.detail.xhr.responseText;
  try { text = JSON.parse(text).error; } catch { /* plain text */ }
  say(text || "refused", true);
});
document.body.addEventListener("htmx:sendError", () => say("the dashboard does not answer", true));
document.body.addEventListener("htmx:confirm", (event) => {
  const text = event.detail.elt.dataset.ask;
  if (!text) return;
  event.preventDefault();
  const dialog = $("#ask");
  $("#ask-text").textContent = text;
  $("#ask-yes").textContent = event.detail.elt.dataset.verb || "Do it";
  dialog.returnValue = "no";
  dialog.onclose = () => { if (dialog.returnValue === "yes") event.detail.issueRequest(true); };
  dialog.showModal();
});
document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-download]");
  if (!button) return;
  const body = new URLSearchParams({ part: button.dataset.part });
  const reply = await fetch(button.dataset.download, { method: "POST", headers: { "X-TaskHarbor": "1" }, body });
  if (!reply.ok) return say("the download was refused", true);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await reply.blob());
  link.download = `${button.dataset.part}.json`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
});
document.addEventListener("input", (event) => {
  const wanted = event.target.dataset.agree;
  if (wanted) event.target.setCustomValidity(event.target.value.trim() === wanted ? "" : `Type ${wanted}`);
});

// Live: one stream while the tab is visible; a page reads again when something changed that it shows
let stream = null, paused = false, waiting = false, refreshing = false, last = 0, rest = 1000, problem = "";
function held() {
  const active = document.activeElement;
  const typing = active && main().contains(active) && active.matches("input:not([type=checkbox]), textarea");
  const marked = getSelection().type === "Range" && main().contains(getSelection().anchorNode);
  return typing || marked || $("dialog[open]") || $("[name=id]:checked") || $("details[open] form") || $("#revealed pre, #revealed [data-download]");
}
function show(state, word) {
  const button = $("#live");
  if (!button) return;
  button.hidden = false;
  button.dataset.state = state;
  button.setAttribute("aria-pressed", String(!paused));
  $("#live-word").textContent = word;
}
function status() {
  if (paused) return show("paused", "paused");
  if (problem) return show("lost", "store away");
  if (stream && stream.readyState === EventSource.OPEN) return held() ? show("held", "held") : show("live", "live");
  if (!document.body.dataset.events) return held() ? show("held", "held") : show("live", "every 10 s");
  return show("lost", "connecting");
}
async function refresh(forced = false) {
  if (refreshing) { waiting = true; return; }
  refreshing = true;
  waiting = false;
  const began = last = Date.now();
  try {
    const reply = await fetch(location.pathname + location.search, { headers: { Accept: "text/html" } });
    if (reply.redirected) return location.assign(reply.url);
    const text = isHtml(reply.headers.get("content-type")) ? await reply.text() : "";
    const fresh = new DOMParser().parseFromString(text, "text/html").querySelector("#main");
    if (fresh && (forced || !held())) { Idiomorph.morph(main(), fresh); htmx.process(main()); morphed(); } else waiting = true;
  } catch { /* the next change, or the next look, tries again */ }
  refreshing = false;
  last = Date.now();
  rest = Math.min(60000, Math.max(1000, last - began < 500 ? 0 : 20 * (last - began))); // a page that is slow rests, as the sampler does
  if (waiting) soon();
}
function soon() {
  waiting = true;
  setTimeout(() => { if (waiting && !paused && !document.hidden && !held()) refresh(); }, Math.max(0, rest - (Date.now() - last)));
}
function trouble(text) {
  const place = $("#trouble");
  if (problem === text || !place) return;
  problem = text;
  status();
  const told = text && !$(".banner[role]:not(#trouble)");
  place.className = told ? "banner bad" : "";
  place.role = "alert";
  place.textContent = told ? `The store does not answer. ${text}` : "";
}
function connect() {
  if (stream || paused || document.hidden || !main().dataset.topics || !document.body.dataset.events) return;
  const job = main().dataset.job;
  stream = new EventSource(document.body.dataset.events + (job ? `?job=${encodeURIComponent(job)}` : ""));
  stream.onopen = () => { status(); soon(); };
  stream.onerror = () => { if (stream && stream.readyState === EventSource.CLOSED) disconnect(); status(); };
  stream.addEventListener("changed", (event) => {
    const changed = JSON.parse(event.data);
    const topics = main().dataset.topics.split(" ");
    trouble(changed.problem);
    if (!changed.problem && changed.topics.some((topic) => topic === "store" || topics.includes(topic))) soon();
  });
}
function disconnect() { if (stream) stream.close(); stream = null; }
document.addEventListener("visibilitychange", () => {
  if (document.hidden) return disconnect();
  connect();
  if (main().dataset.topics && !paused) soon();
});
addEventListener("pagehide", disconnect);
addEventListener("pageshow", () => { connect(); count(); }); // going back restores ticks
setInterval(() => {
  status();
  if (waiting && !refreshing) soon();
  const quiet = !stream || stream.readyState !== EventSource.OPEN;
  if (quiet) connect();
  if (main().dataset.topics && quiet && Date.now() - last > Math.max(10000, rest) && !paused && !document.hidden && !held()) refresh();
}, 1000);
function toggleLive() { paused = !paused; paused ? disconnect() : (connect(), refresh()); status(); }

// Morphing keeps the focus, the scroll position and the charts
Idiomorph.defaults.callbacks.beforeNodeMorphed = (old, fresh) => {
  if (!old.uplot) return true;
  if (old.dataset.chart !== fresh.dataset.chart) { old.dataset.chart = fresh.dataset.chart; old.ariaLabel = fresh.ariaLabel; draw(old); }
  return false;
};
function morphed() { $$(".chart").forEach((chart) => chart.uplot || draw(chart)); tick(); const text = problem; problem = ""; trouble(text); }

// Times
const units = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];
function span(seconds) {
  if (seconds < 10) return `${Math.floor(seconds)}s`;
  let left = Math.round(seconds);
  const parts = [];
  for (const [unit, size] of units) {
    const count = Math.floor(left / size);
    left -= count * size;
    if (count || parts.length) parts.push(count ? count + unit : "");
  }
  return parts.slice(0, 2).filter(Boolean).join(" ");
}
let anchor = null, offset = 0; // between the store's clock and this one
function tick() {
  const now = main().dataset.now;
  if (now && now !== anchor) { anchor = now; offset = Date.parse(now) - Date.now(); }
  $$("time[data-rel]").forEach((time) => {
    const moment = Date.parse(time.dateTime);
    const distance = (moment - Date.now() - offset) / 1000;
    const text = distance > 0 ? `in ${span(distance)}` : `${span(-distance)} ago`;
    if (time.textContent !== text) time.textContent = text;
    if (!time.dataset.local) { time.dataset.local = "1"; time.title = `${time.title}\n${new Date(moment).toLocaleString()} here`; }
  });
}
setInterval(() => { if (!document.hidden) tick(); }, 1000);

// Charts
const probe = document.body.appendChild(document.createElement("i"));
probe.hidden = true;
const colour = (tone) => { probe.style.color = `var(--${tone})`; return getComputedStyle(probe).color; };
const faint = (tone) => colour(tone).replace(/rgb\((.*)\)/, "rgba($1, .13)");
const amount = (value, unit) => value == null ? "–" : unit === "ms" ? (value < 100 ? `${Math.round(value)}ms` : value < 10000 ? `${+(value / 1000).toFixed(1)}s` : span(value / 1000)) : value.toLocaleString("en");
const clock = { hour: "2-digit", minute: "2-digit", hour12: false };
function draw(chart) {
  if (chart.uplot) { chart.uplot.destroy(); chart.uplot = null; }
  if (!window.uPlot) return;
  const { x, series, unit } = JSON.parse(chart.dataset.chart);
  const soft = colour("soft"), line = colour("line-2");
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  chart.textContent = "";
  const axis = { stroke: soft, grid: { stroke: line, width: 1 }, ticks: { show: false }, font: "11px Inter, system-ui" };
  chart.uplot = new uPlot({
    width: chart.clientWidth, height: 104, padding: [6, 14, 0, 0], legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 5 } },
    scales: { y: { range: (_, low, high) => [0, Math.max(high || 0, unit === "ms" ? 10 : 4) * 1.05] } },
    axes: [{ ...axis, size: 20, space: 70, values: (_, ticks) => ticks.map((tick) => new Date(tick * 1000).toLocaleTimeString([], clock)) },
           { ...axis, size: 42, space: 34, values: (_, ticks) => ticks.map((tick) => amount(tick, unit)) }],
    series: [{}, ...series.map((each, place) => ({ label: each.label, stroke: colour(each.tone), width: 1.5, fill: place ? undefined : faint(each.tone), points: { show: false }, spanGaps: false }))],
    hooks: { setCursor: [(plot) => {
      const at = plot.cursor.idx;
      tip.hidden = at == null || plot.cursor.left < 0;
      if (tip.hidden) return;
      tip.textContent = [new Date(plot.data[0][at] * 1000).toLocaleTimeString([], clock), ...series.map((each) => `${each.label} ${amount(each.data[at], unit)}`)].join("\n");
      tip.style.left = `${Math.min(plot.cursor.left + 50, chart.clientWidth - tip.offsetWidth - 2)}px`;
    }] },
  }, [x.map((moment) => Date.parse(moment) / 1000), ...series.map((each) => each.data)], chart);
  chart.append(tip);
}
const drawAll = () => $$(".chart").forEach(draw);
let resized;
addEventListener("resize", () => { clearTimeout(resized); resized = setTimeout(drawAll, 150); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);

// Theme
function toggleTheme() {
  const dark = document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const theme = dark ? "light" : "dark";
  document.documentElement.dataset.theme = theme;
  stored("taskharbor-theme", theme);
  drawAll();
  say(`${theme} theme`);
}

// Rows: selecting, and moving by keys
function count() {
  const bar = $("#selection"), number = $$("[name=id]:checked").length;
  if (!bar) return;
  bar.hidden = !number;
  $("#selected").textContent = String(number);
  const all = $("#all");
  if (all) { all.checked = number > 0 && number === $$("[name=id]").length; all.indeterminate = number > 0 && !all.checked; }
  status();
}
function unselect() { $$("[name=id]:checked").forEach((box) => { box.checked = false; }); count(); }
document.addEventListener("change", (event) => {
  if (event.target.id === "all") $$("[name=id]").forEach((box) => { box.checked = event.target.checked; });
  if (event.target.matches("#all, [name=id]")) count();
});
document.addEventListener("click", (event) => {
  const target = event.target.closest("button");
  if (!target) return;
  if (target.id === "unselect") unselect();
  if (target.id === "theme") toggleTheme();
  if (target.id === "keys-open") $("#keys").showModal();
  if (target.id === "live") toggleLive();
});
function move(step) {
  const rows = $$("[data-row]");
  if (!rows.length) return;
  const at = rows.findIndex((row) => row.contains(document.activeElement));
  const row = rows[Math.min(rows.length - 1, Math.max(0, at + step))];
  ($("th a", row) || $("a", row)).focus();
}

// Keys
let going = 0;
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input:not([type=checkbox]), textarea, select") || $("dialog[open]")) return;
  const key = event.key;
  if (Date.now() - going < 1500) {
    going = 0;
    const link = $$("[data-go]").find((each) => each.dataset.go === key);
    if (link) { event.preventDefault(); link.click(); }
    return;
  }
  const marked = $$("[data-key]").find((each) => each.dataset.key === key);
  if (marked) { event.preventDefault(); marked.click(); return; }
  const keys = {
    "/": () => { const filter = $("#filter"); filter ? filter.select() : location.assign(`${document.body.dataset.prefix}/jobs#filter`); },
    "g": () => { going = Date.now(); },
    "j": () => move(1), "k": () => move(-1),
    "x": () => { const row = document.activeElement.closest("[data-row]"); const box = row && $("[name=id]", row); if (box) { box.checked = !box.checked; count(); } },
    ".": toggleLive, "t": toggleTheme, "?": () => $("#keys").showModal(),
  };
  if (keys[key]) { event.preventDefault(); keys[key](); }
});

// Begin
["#theme", "#keys-open"].forEach((id) => { const button = $(id); if (button) button.hidden = false; });
const agree = $("[data-agree]");
if (agree) agree.setCustomValidity(`Type ${agree.dataset.agree}`);
if (location.hash === "#edit" && $("#edit")) $("#edit").open = true;
if (location.hash === "#filter" && $("#filter")) $("#filter").select();
const here = $(".side [aria-current]");
if (here) here.parentElement.scrollLeft = here.offsetLeft - 60;
drawAll();
tick();
connect();
if (main().dataset.topics) status(); else if ($("#live")) $("#live").hidden = true;
