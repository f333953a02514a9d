// Sorts the arms of the first screen.
(() => {
  const list = document.getElementById("forest");
  if (!list) return;
  const buttons = [...list.querySelectorAll("button[data-by]")];
  const key = list.querySelector(".key");
  for (const button of buttons) {
    button.addEventListener("click", () => {
      const by = button.dataset.by;
      const place = (row) => Number(row.dataset[by]);
      const rows = [...list.querySelectorAll("details.row")];
      rows.sort((a, b) => place(a) - place(b) || a.dataset.retention - b.dataset.retention);
      for (const row of rows) list.insertBefore(row, key);
      for (const other of buttons) other.setAttribute("aria-pressed", String(other === button));
    });
  }
})();
