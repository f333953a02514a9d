// The sample browser: find, sort and page through samples, two answers side by side.
async function unpack(id) {
  const packed = atob(document.getElementById(id).textContent);
  const bytes = new Uint8Array(packed.length);
  for (let k = 0; k < packed.length; k += 1) bytes[k] = packed.charCodeAt(k);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).json();
}

(async () => {
  const [ID, TASK, LENGTH, DEPTH, WHICH, SCORES, FLAGS] = [0, 1, 2, 3, 4, 5, 6];
  const at = (id) => document.getElementById(id);
  const node = (parent, tag, cls, words) => {
    const made = document.createElement(tag);
    if (cls) made.className = cls;
    if (words !== undefined) made.textContent = words; // model output is text, never markup
    parent.append(made);
    return made;
  };
  if (typeof DecompressionStream === "undefined") {
    at("count").textContent = "The samples need a browser of 2023 or later.";
    return;
  }
  const data = await unpack("index");
  await texts.open();
  const ids = data.rows.map((row) => row[ID]);
  const options = (id, names) => names.forEach((name, k) => {
    node(at(id), "option", "", name).value = String(k);
  });
  options("f-arm", ["any", ...data.arms.slice(1)]); // the number is the arm's; 0 stands for all
  options("f-task", ["all", ...data.tasks]);

  // -- finding -----------------------------------------------------------------------------------
  const all = data.arms.map((_, k) => k).slice(1);
  const others = (arm) => arm ? [arm] : all;
  const gap = (row, arm) => row[SCORES][arm] === null || row[SCORES][0] === null
    ? 0 : row[SCORES][arm] - row[SCORES][0];
  const bad = /error|empty|unclosed|length|cut_early/;
  const keeps = {
    all: () => true,
    differ: (row, arm) => others(arm).some((k) => gap(row, k) !== 0),
    lost: (row, arm) => others(arm).some((k) => gap(row, k) < 0),
    won: (row, arm) => others(arm).some((k) => gap(row, k) > 0),
    flag: (row, arm) => row[FLAGS].some((flag, k) => (!arm || k === arm) && bad.test(flag)),
  };
  const spread = (row, arm) => others(arm).reduce((sum, k) => sum + Math.abs(gap(row, k)), 0);
  const sorts = { // what comes first is small
    disagreement: (row, arm) => -spread(row, arm),
    run: () => 0,
    length: (row) => row[LENGTH],
    depth: (row) => row[DEPTH],
  };
  let listed = [], place = 0, right = 0;
  const value = (id) => at(id).value;
  async function filter() {
    const keep = keeps[value("f-kind")], arm = Number(value("f-arm"));
    const task = Number(value("f-task")) - 1, words = value("f-text").trim().toLowerCase();
    const hits = words ? await texts.search(words, ids) : null;
    listed = [...data.rows.keys()].filter((k) => {
      const row = data.rows[k];
      return (task < 0 || row[TASK] === task) && keep(row, arm) && (!hits || hits.has(k));
    });
    const key = sorts[value("f-sort")];
    const keys = new Map(listed.map((k) => [k, key(data.rows[k], arm)]));
    listed.sort((a, b) => keys.get(a) - keys.get(b) || a - b);
    place = 0;
    right = arm;
  }

  // -- showing -----------------------------------------------------------------------------------
  const points = (score) => score === null ? "–" : `${Number(score.toFixed(1))}`;
  const words = (text) => text.match(/\s+|\p{Script=Han}|[\p{L}\p{N}_]+|[^\s]/gu) ?? [];

  // Which words of two texts are not in their longest common subsequence.
  function differing(a, b) {
    let start = 0, end = 0;
    while (start < a.length && start < b.length && a[start] === b[start]) start += 1;
    while (end < a.length - start && end < b.length - start
      && a[a.length - 1 - end] === b[b.length - 1 - end]) end += 1;
    const [n, m] = [a.length - start - end, b.length - start - end];
    const one = new Set(), two = new Set();
    for (let i = 0; i < n; i += 1) one.add(start + i);
    for (let j = 0; j < m; j += 1) two.add(start + j);
    if (n * m > 4e6) return [one, two]; // too long to compare: all of it is marked
    const best = Array.from({ length: n + 1 }, () => new Uint32Array(m + 1));
    for (let i = n - 1; i >= 0; i -= 1) {
      for (let j = m - 1; j >= 0; j -= 1) {
        best[i][j] = a[start + i] === b[start + j]
          ? best[i + 1][j + 1] + 1 : Math.max(best[i + 1][j], best[i][j + 1]);
      }
    }
    for (let i = 0, j = 0; i < n && j < m;) {
      if (a[start + i] === b[start + j]) {
        one.delete(start + i);
        two.delete(start + j);
        i += 1;
        j += 1;
      } else if (best[i + 1][j] >= best[i][j + 1]) i += 1;
      else j += 1;
    }
    return [one, two];
  }
  function marked(parent, list, which) {
    let run = "", on = false;
    const flush = () => { if (run) on ? node(parent, "mark", "", run) : parent.append(run); run = ""; };
    list.forEach((word, k) => {
      const now = which.has(k) && word.trim() !== "";
      if (now !== on && word.trim() !== "") { flush(); on = now; }
      run += word;
    });
    flush();
  }

  // A prompt with every place marked where a gold answer stands, and the sentence around it.
  function prompt(box, text, gold) {
    const wanted = gold.filter((answer) => answer.trim().length > 1);
    const spots = [];
    for (const answer of wanted) {
      for (let k = text.indexOf(answer); k >= 0 && spots.length < 200; k = text.indexOf(answer, k + 1)) {
        spots.push([k, k + answer.length]);
      }
    }
    spots.sort((a, b) => a[0] - b[0]);
    const head = node(box, "summary", "", `prompt, ${text.length.toLocaleString("en")} characters; `);
    head.append(spots.length ? `gold marked in ${spots.length} place${spots.length > 1 ? "s" : ""}`
      : "no gold answer stands in it word by word");
    const shown = node(box, "pre", "prompt");
    let done = 0;
    for (const [from, to] of spots) {
      if (from < done) continue;
      const before = text.slice(done, from);
      const begin = done + Math.max(
        before.lastIndexOf("\n"), before.lastIndexOf(". ") + 1, before.length - 300, 0);
      const rest = text.slice(to).search(/[.\n]/);
      const end = rest < 0 ? text.length : Math.min(to + rest + 1, to + 300);
      shown.append(text.slice(done, begin));
      const around = node(shown, "span", "needle", text.slice(begin, from));
      node(around, "mark", "", text.slice(from, to));
      const next = spots.find((spot) => spot[0] >= to);
      const stop = next ? Math.min(end, next[0]) : end;
      around.append(text.slice(to, stop));
      done = stop;
    }
    shown.append(text.slice(done));
    box.addEventListener("toggle", () => {
      const first = shown.querySelector("mark");
      if (box.open && first) shown.scrollTop = first.offsetTop - shown.offsetTop - 80;
    });
    box.open = true;
  }

  // The arm beside the baseline: the chosen one, else the one that differs most.
  function beside(row) {
    if (right) return right;
    const rank = (k) => Math.abs(gap(row, k)) * 2 + (row[WHICH][k] !== row[WHICH][0]);
    return others(0).reduce((best, k) => rank(k) > rank(best) ? k : best, 1);
  }
  function answer(box, row, arm, list, which, raw) {
    const side = node(box, "div", "side");
    const same = data.arms.filter((_, k) => row[WHICH][k] === row[WHICH][arm] && k !== arm);
    const head = node(side, "p", "who");
    node(head, "b", "", data.arms[arm]);
    head.append(`: ${points(row[SCORES][arm])} points`);
    if (row[FLAGS][arm]) node(head, "span", "flag", row[FLAGS][arm]);
    const state = row[SCORES][arm] >= 50 ? "right" : "wrong";
    const shown = node(side, "div", `answer ${state}`);
    if (list.length) marked(shown, list, which);
    else node(shown, "i", "", row[WHICH][arm] < 0 ? "no answer" : "empty");
    if (raw !== null) {
      const more = node(side, "details");
      node(more, "summary", "", "raw answer, of which the above was scored");
      node(more, "pre", "", raw);
    } else if (list.length) node(side, "p", "same", "scored as it was generated");
    if (same.length) node(side, "p", "same", `the same answer: ${same.join(", ")}`);
  }
  function card(row, [question, gold, answers, text, missing]) {
    const box = document.createElement("article");
    const title = node(box, "h3");
    node(title, "a", "", row[ID]).href = link(row);
    const facts = [data.tasks[row[TASK]]];
    if (row[LENGTH] !== null) facts.push(`length ${row[LENGTH].toLocaleString("en")}`);
    if (row[DEPTH] !== null) facts.push(`depth ${Number(row[DEPTH].toFixed(1))} %`);
    node(title, "small", "", facts.join(" · "));
    const arm = beside(row);
    const chips = node(box, "div", "chips");
    data.arms.forEach((name, k) => {
      const look = k === 0 || gap(row, k) === 0 ? "base" : gap(row, k) < 0 ? "bad" : "good";
      const chip = node(chips, "button", `chip ${look}`, `${name} ${points(row[SCORES][k])}`);
      chip.type = "button";
      chip.setAttribute("aria-pressed", String(k === arm));
      if (k) chip.addEventListener("click", () => { right = k; show(true); });
      else chip.disabled = true;
    });
    const fact = (name, words) => {
      const line = node(box, "p", "fact");
      node(line, "span", "label", name);
      line.append(words);
    };
    if (question) fact("question ", question);
    fact("gold ", gold.join(" | "));
    const both = data.arms.length > 1 ? [0, arm] : [0];
    const pair = both.map((k) => answers[row[WHICH][k]] ?? ["", null]);
    const lists = pair.map(([scored]) => words(scored));
    const marks = differing(lists[0], lists[1] ?? lists[0]);
    const sides = node(box, "div", "sides");
    both.forEach((k, s) => answer(sides, row, k, lists[s], marks[s], pair[s][1]));
    if (text !== null) prompt(node(box, "details", "whole"), text, gold);
    else node(box, "p", "missing", missing ? `The prompt is not shown: ${missing}.` : at("samples").dataset.missing);
    return box;
  }
  const link = (row) => `#sample=${encodeURIComponent(row[ID])}`
    + (right ? `&arm=${encodeURIComponent(data.arms[right])}` : "");
  let asked = 0;
  async function show(moved) {
    const now = asked += 1, count = listed.length;
    at("count").textContent = count ? `${place + 1} of ${count.toLocaleString("en")}` : "no such sample";
    at("prev").disabled = place === 0;
    at("next").disabled = place + 1 >= count;
    if (!count) return at("sample").replaceChildren();
    const row = data.rows[listed[place]];
    let shown;
    try {
      shown = card(row, await texts.get(listed[place]));
    } catch (error) {
      shown = document.createElement("p");
      shown.textContent = error.message;
    }
    if (now !== asked) return undefined; // another one was asked for meanwhile
    at("sample").replaceChildren(shown);
    if (moved) history.replaceState(null, "", link(row));
    return undefined;
  }

  // -- steering ----------------------------------------------------------------------------------
  async function follow() { // a link to a sample
    const asks = new URLSearchParams(location.hash.slice(1));
    const number = ids.indexOf(asks.get("sample"));
    if (number < 0) return false;
    if (!listed.includes(number)) {
      at("f-kind").value = "all";
      at("f-task").value = "0";
      at("f-text").value = "";
      await filter();
    }
    place = listed.indexOf(number);
    right = Math.max(0, data.arms.indexOf(asks.get("arm")));
    await show(false);
    at("samples").scrollIntoView();
    return true;
  }
  const turn = (step) => {
    if (!listed[place + step] && listed[place + step] !== 0) return;
    place += step;
    show(true);
  };
  at("prev").addEventListener("click", () => turn(-1));
  at("next").addEventListener("click", () => turn(1));
  document.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || event.target.closest("input, select")) return;
    if (at("samples").getBoundingClientRect().top > innerHeight) return;
    if (event.key === "ArrowLeft") turn(-1);
    if (event.key === "ArrowRight") turn(1);
  });
  const again = async () => { await filter(); await show(false); };
  at("filters").addEventListener("submit", (event) => event.preventDefault());
  for (const id of ["f-kind", "f-arm", "f-task", "f-sort"]) at(id).addEventListener("change", again);
  let timer = 0;
  at("f-text").addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(again, 200); });
  addEventListener("hashchange", follow);
  if (!data.rows.some((row) => keeps.differ(row, 0))) at("f-kind").value = "all";
  await filter();
  if (!await follow()) await show(false);
})();
