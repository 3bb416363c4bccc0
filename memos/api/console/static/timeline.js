// The slider: it tells the day while it moves, and shows the day when it stops.

const slide = document.querySelector("form[data-slide]");
const choice = document.querySelector("form[data-choice]");

/**
 * Return the day so many days after the first as YYYY-MM-DD.
 * @param {number} offset
 */
function dayAt(offset) {
  const day = new Date(`${slide.dataset.first}T00:00:00Z`);
  day.setUTCDate(day.getUTCDate() + offset);
  return day.toISOString().slice(0, 10);
}

if (slide && choice) {
  document.documentElement.classList.add("scripted");
  const range = slide.querySelector('input[type="range"]');
  const date = choice.querySelector('input[type="date"]');
  const label = slide.querySelector("[data-day]");
  range.addEventListener("input", () => {
    label.textContent = dayAt(Number(range.value));
  });
  range.addEventListener("change", () => {
    date.value = dayAt(Number(range.value));
    choice.requestSubmit();
  });
  slide.addEventListener("submit", (event) => {
    event.preventDefault();
    event.stopImmediatePropagation();
    date.value = dayAt(Number(range.value));
    choice.requestSubmit();
  }, true);
  choice.addEventListener("submit", () => {
    const first = new Date(`${slide.dataset.first}T00:00:00Z`);
    range.value = String(Math.round((new Date(`${date.value}T00:00:00Z`) - first) / 86400000));
    label.textContent = date.value;
  });
}
