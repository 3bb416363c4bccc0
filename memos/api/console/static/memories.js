// The table of memories: filters are open where there is room, and the number of selected rows is told.

const narrow = document.getElementById("narrow");
if (narrow && matchMedia("(min-width: 52.01rem)").matches) narrow.open = true;

/** Say how many memories are selected, and that "all that match" is more than those. */
function count() {
  const told = document.getElementById("selected");
  if (!told) return;
  const selected = document.querySelectorAll('#chosen [name="item"]:checked').length;
  const all = document.querySelector('#chosen [name="all"]')?.checked;
  told.textContent = all ? "all that match" : selected ? `${selected} selected` : "";
}
document.addEventListener("change", (event) => {
  if (event.target.closest?.("#chosen")) count();
});
count();

// A key opens the form and goes into its text.
document.querySelector("#edit > summary")?.addEventListener("click", (event) => {
  event.preventDefault();
  const edit = document.getElementById("edit");
  edit.open = !edit.open;
  if (edit.open) document.getElementById("memory").focus();
});
document.getElementById("words")?.addEventListener("click", (event) => event.target.focus());
