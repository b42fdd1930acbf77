// Sorts and filters the tables. The page is complete without it.
"use strict";
(() => {
  const orderOf = (row, column) => {
    const cell = row.cells[column];
    if (cell.dataset.order !== undefined) return Number(cell.dataset.order);
    return cell.textContent.trim();
  };

  // Cells without a value come last in both directions.
  const compare = (one, other, direction) => {
    const rank = (value) => (value === "" ? 2 : typeof value === "number" ? 0 : 1);
    if (rank(one) !== rank(other)) return rank(one) - rank(other);
    if (typeof one === "number") return direction * (one - other);
    return direction * one.localeCompare(other, "en", { numeric: true });
  };

  const sort = (table, button) => {
    const column = Number(button.dataset.sort);
    const head = button.closest("th");
    const direction = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    for (const other of table.querySelectorAll("th[aria-sort]")) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", direction === 1 ? "ascending" : "descending");
    const body = table.tBodies[0];
    const rows = [...body.rows].map((row, place) => ({ row, place, value: orderOf(row, column) }));
    rows.sort((a, b) => compare(a.value, b.value, direction) || a.place - b.place);
    body.append(...rows.map(({ row }) => row));
  };

  const filter = (box, table) => {
    const words = box.querySelector("[data-filter]").value.toLowerCase().split(/\s+/).filter(Boolean);
    const rows = [...table.tBodies[0].rows];
    for (const row of rows) {
      const text = [...row.cells].map((cell) => cell.textContent.toLowerCase()).join(" ");
      row.hidden = !words.every((word) => text.includes(word));
    }
    const left = rows.filter((row) => !row.hidden).length;
    box.querySelector("[data-count]").value =
      words.length ? `${left} of ${rows.length} rows` : `${rows.length} rows`;
  };

  for (const box of document.querySelectorAll("[data-table]")) {
    const table = box.querySelector("table");
    for (const button of box.querySelectorAll("[data-sort]")) {
      button.addEventListener("click", () => sort(table, button));
    }
    const input = box.querySelector("[data-filter]");
    if (!input) continue;
    input.addEventListener("input", () => filter(box, table));
    input.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      input.value = "";
      filter(box, table);
    });
  }
})();
