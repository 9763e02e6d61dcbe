// Light, dark, or as the system has it. The choice is kept in the browser.
import { signal } from "./html.js";

const choices = ["system", "light", "dark"];
const key = "plinth-theme";

export const theme = signal(choices.includes(localStorage.getItem(key)) ? localStorage.getItem(key) : "system");

export function applyTheme() {
  document.documentElement.dataset.theme = theme.value;
}

export function nextTheme() {
  theme.value = choices[(choices.indexOf(theme.value) + 1) % choices.length];
  localStorage.setItem(key, theme.value);
  applyTheme();
}
