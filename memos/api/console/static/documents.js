// The list of files: what is added appears as a row, which follows its reading by itself.

const form = document.querySelector("[data-drop]");
const list = document.getElementById("files-list");

if (form) {
  form.querySelector("[data-plain]").hidden = true; // chosen files are sent at once
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("uploaded", (event) => {
    const { file, entry } = event.detail;
    entry.remove();
    document.getElementById("no-files")?.remove();
    document.getElementById("files-table").hidden = false;
    document.getElementById(`file-${file.id}`)?.remove();
    const address = form.dataset.rowUrl;
    const url = `${address}${address.includes("?") ? "&" : "?"}file=${encodeURIComponent(file.id)}`;
    window.htmx.ajax("GET", url, { target: list, swap: "afterbegin" });
    window.memos.notify(`${file.name} is being read.`);
  });
}
