"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const PAGE = 20;
  const [ID, TASK, QUESTION, GOLD, ANSWERS, WHICH, SCORES, FLAGS] = [0, 1, 2, 3, 4, 5, 6, 7];
  const at = (id) => document.getElementById(id);
  const text = (parent, tag, cls, words) => {
    const node = document.createElement(tag);
    if (cls) node.className = cls;
    node.textContent = words; // model output is text, never markup
    parent.appendChild(node);
    return node;
  };
  const options = (id, names) => names.forEach((name, k) => {
    text(at(id), "option", "", name).value = String(k - 1);
  });
  options("f-arm", ["any", ...data.arms]);
  options("f-task", ["any", ...data.tasks]);
  let haystacks = null; // one lower-case string per sample, made at the first search
  const words = (row) => [row[ID], row[QUESTION], row[GOLD], ...row[ANSWERS]].join("\n").toLowerCase();
  const keeps = {
    all: () => true,
    differ: (row, arm) => arm < 1
      ? row[SCORES].some((s) => s !== null && s !== row[SCORES][0])
      : row[SCORES][arm] !== null && row[SCORES][arm] !== row[SCORES][0],
    lost: (row, arm) => arms(arm).some((k) => row[SCORES][k] !== null && row[SCORES][k] < row[SCORES][0]),
    won: (row, arm) => arms(arm).some((k) => row[SCORES][k] !== null && row[SCORES][k] > row[SCORES][0]),
    flag: (row, arm) => row[FLAGS].some((f, k) => (arm < 0 || k === arm) && /error|empty|unclosed|length|cut_early/.test(f)),
  };
  const arms = (arm) => arm < 0 ? data.arms.map((_, k) => k) : [arm];
  let found = [], page = 0;
  function filter() {
    const kind = keeps[at("f-kind").value], arm = Number(at("f-arm").value);
    const task = Number(at("f-task").value), wanted = at("f-text").value.trim().toLowerCase();
    if (wanted && !haystacks) haystacks = data.rows.map(words);
    found = [];
    data.rows.forEach((row, k) => {
      if (task >= 0 && row[TASK] !== task) return;
      if (!kind(row, arm)) return;
      if (wanted && !haystacks[k].includes(wanted)) return;
      found.push(row);
    });
    page = 0;
    show();
  }
  function card(row) {
    const box = document.createElement("article");
    text(box, "h3", "", row[ID]);
    if (row[QUESTION]) text(box, "p", "", row[QUESTION]);
    const gold = text(box, "p", "", "");
    text(gold, "span", "label", "gold: ");
    gold.append(row[GOLD]);
    row[ANSWERS].forEach((answer, k) => {
      const who = data.arms.map((_, a) => a).filter((a) => row[WHICH][a] === k);
      const score = row[SCORES][who[0]];
      const names = who.map((a) => data.arms[a] + (row[FLAGS][a] ? ` [${row[FLAGS][a]}]` : ""));
      text(box, "p", "who", `${names.join(", ")}: ${(100 * score).toFixed(0)} points`);
      text(box, "p", `answer ${score >= 0.5 ? "right" : "wrong"}`, answer || "(empty)");
    });
    return box;
  }
  function show() {
    const pages = Math.max(1, Math.ceil(found.length / PAGE));
    at("count").textContent = `${found.length} samples, page ${page + 1} of ${pages}`;
    at("prev").disabled = page === 0;
    at("next").disabled = page + 1 >= pages;
    at("list").replaceChildren(...found.slice(page * PAGE, (page + 1) * PAGE).map(card));
  }
  at("prev").addEventListener("click", () => { page -= 1; show(); });
  at("next").addEventListener("click", () => { page += 1; show(); });
  at("filters").addEventListener("submit", (event) => event.preventDefault());
  for (const id of ["f-kind", "f-arm", "f-task"]) at(id).addEventListener("change", filter);
  let timer = 0;
  at("f-text").addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(filter, 150); });
  filter();
})();
