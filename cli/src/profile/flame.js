/*
 * The script of a profile's picture (flame.rs): a click makes a box as wide as the picture, "search" marks boxes by name.
 * Positions are in samples; 10 is the margin, 1180 the width of all, 7.25 that of a letter, as flame.rs draws them.
 */
const boxes = [...document.querySelectorAll("#boxes > g")].map(g => ({
  g, s: +g.dataset.s, c: +g.dataset.c, d: +g.dataset.d, name: g.firstChild.textContent.replace(/( \([^()]*\))?: \d+ samples.*$/, "") }));
const note = document.getElementById("note"), words = note.textContent;
function zoom(to) {
  for (const b of boxes) {
    const outer = b.d < to.d && b.s <= to.s && b.s + b.c >= to.s + to.c;
    const inner = b.d >= to.d && b.s >= to.s && b.s + b.c <= to.s + to.c;
    b.g.style.display = outer || inner ? "" : "none";
    b.g.classList.toggle("outer", outer);
    const x = outer ? 10 : 10 + (b.s - to.s) / to.c * 1180, w = outer ? 1180 : b.c / to.c * 1180;
    const [rect, text] = [b.g.children[1], b.g.children[2]];
    rect.setAttribute("x", x); rect.setAttribute("width", w); text.setAttribute("x", x + 3);
    const room = Math.max(0, Math.floor((w - 6) / 7.25));
    text.textContent = b.name.length <= room ? b.name : room < 3 ? "" : b.name.slice(0, room - 2) + "..";
  }
}
for (const b of boxes) {
  b.g.addEventListener("click", () => zoom(b));
  b.g.addEventListener("mouseenter", () => note.textContent = b.g.firstChild.textContent);
  b.g.addEventListener("mouseleave", () => note.textContent = words);
}
document.getElementById("search").addEventListener("click", () => {
  const asked = prompt("Part of a function's name");
  if (asked === null) return;
  for (const b of boxes) b.g.classList.toggle("found", asked !== "" && b.name.includes(asked));
});
