// The page Ask: what opens takes the keyboard.

document.addEventListener("toggle", (event) => {
  if (event.target.matches(".act") && event.target.open) event.target.querySelector("textarea")?.focus();
}, true);
