"use strict";
// Columns' names in cells (for cards on small screens), tables that sort, claims that filter. Without it all is still readable.
document.documentElement.classList.add("js");

function columnsOf(table) {
  // A header may span rows and columns: each column's names from top to bottom, and the cell that ends it.
  const grid = [];
  [...table.tHead.rows].forEach((row, y) => {
    grid[y] = grid[y] || [];
    let x = 0;
    for (const cell of row.cells) {
      while (grid[y][x]) x += 1;
      for (let down = 0; down < cell.rowSpan; down += 1) {
        grid[y + down] = grid[y + down] || [];
        for (let right = 0; right < cell.colSpan; right += 1) grid[y + down][x + right] = cell;
      }
      x += cell.colSpan;
    }
  });
  return grid[0].map((_, x) => [...new Set(grid.map((row) => row[x]))]);
}

function valueOf(row, x) {
  const text = (row.cells[x]?.dataset.value ?? row.cells[x]?.textContent ?? "").trim();
  const number = parseFloat(text.replaceAll(",", "").replace("−", "-"));
  return Number.isNaN(number) ? text : number;
}

function compare(one, other) {
  // Text after numbers, so that “–” and empty cells come last.
  if (typeof one !== typeof other) return typeof one === "number" ? -1 : 1;
  return typeof one === "number" ? one - other : one.localeCompare(other);
}

for (const table of document.querySelectorAll("table")) {
  const columns = columnsOf(table);
  for (const row of table.tBodies[0].rows) {
    [...row.cells].forEach((cell, x) => { cell.dataset.label = (columns[x] || []).map((head) => head.innerText.trim()).join(": "); });
  }
  columns.forEach((heads, x) => {
    const head = heads[heads.length - 1];
    if (head.colSpan > 1) return;
    head.ariaSort = "none";
    head.title = "sort";
    head.addEventListener("click", () => {
      const sign = head.ariaSort === "ascending" ? -1 : 1;
      table.querySelectorAll("th[aria-sort]").forEach((one) => { one.ariaSort = "none"; });
      head.ariaSort = sign > 0 ? "ascending" : "descending";
      const rows = [...table.tBodies[0].rows];
      rows.sort((one, other) => sign * compare(valueOf(one, x), valueOf(other, x)));
      table.tBodies[0].append(...rows);
    });
  });
}

const filters = document.querySelector("#claim-filters");
if (filters) {
  const search = filters.querySelector("input");
  const apply = () => {
    const wanted = filters.querySelector("[aria-pressed=true]").value;
    const words = search.value.toLowerCase();
    for (const row of document.querySelectorAll("[data-verdicts]")) {
      const fits = !wanted || row.dataset.verdicts.split(" ").includes(wanted);
      row.hidden = !(fits && row.textContent.toLowerCase().includes(words));
    }
    for (const part of document.querySelectorAll("[data-claims]")) part.hidden = !part.querySelector("[data-verdicts]:not([hidden])");
  };
  filters.addEventListener("click", (event) => {
    if (event.target.tagName !== "BUTTON") return;
    filters.querySelectorAll("button").forEach((one) => { one.ariaPressed = String(one === event.target); });
    apply();
  });
  search.addEventListener("input", apply);
}

// On paper a tall figure is its pages: views of the one picture, each with a shape of its own.
addEventListener("beforeprint", () => {
  for (const image of document.querySelectorAll("img[data-pages]")) {
    const sizes = image.dataset.pages.split(" ").map((size) => size.split("/").map(Number));
    const tallest = Math.max(...sizes.map(([, height]) => height));
    sizes.forEach(([width, height], place) => {
      const part = document.createElement("img");
      part.className = "part";
      part.src = `${image.src}#page-${place + 1}`;
      // All at one scale, at which the tallest fits the paper (report.css).
      part.style.setProperty("--width", width / tallest);
      part.style.setProperty("--height", height / tallest);
      image.before(part);
    });
    image.classList.add("whole");
  }
});
addEventListener("afterprint", () => {
  document.querySelectorAll("img.part").forEach((part) => part.remove());
  document.querySelectorAll("img.whole").forEach((image) => image.classList.remove("whole"));
});

// A link into a folded part opens it.
const unfold = () => {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (let part = target; part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
  if (target) target.scrollIntoView();
};
addEventListener("hashchange", unfold);
unfold();
