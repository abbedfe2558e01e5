// Optional: the console works without this script. It shows prices while a person types, and results without a reload.
"use strict";

const field = (form, name) => form.elements.namedItem(name);

function body(form, submitter) {
  return new URLSearchParams(new FormData(form, submitter));
}

// Parts of a page that came from our own server, which escapes every name in them.
function parsed(text) {
  return new DOMParser().parseFromString(text, "text/html");
}

// A part says by data-fill which place each of its pieces is for; without it, all of it is for the one place.
function fill(place, page) {
  const pieces = page.querySelectorAll("[data-fill]");
  pieces.forEach((each) => document.querySelector(each.dataset.fill).replaceChildren(...each.childNodes));
  if (!pieces.length) place.replaceChildren(...page.body.childNodes);
}

function fresh(form) {
  const key = field(form, "key");
  if (!key) return;
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  key.value = Array.from(bytes, (each) => each.toString(16).padStart(2, "0")).join("");
}

function later(work, pause) {
  let timer;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(work, pause);
  };
}

// -- prices and odds, while a person types -----------------------------------------------------------------------------

function live(form, address, place, done = () => {}) {
  let last = 0;
  return async () => {
    const mine = ++last;
    try {
      const sent = { method: "POST", body: body(form), headers: { "X-Part": "price" }, redirect: "error" };
      const response = await fetch(address, sent);
      const page = parsed(await response.text());
      if (mine !== last) return;
      fill(place, page);
      done();
    } catch {
      // Offline, or signed out: the buttons will say so.
    }
  };
}

const question = document.querySelector("form[data-price]");
if (question) {
  const price = document.querySelector("#price");
  const show = live(question, question.dataset.price, price, () => {
    // A problem is shown in one place: here, and not in the last result as well.
    if (price.querySelector(".trouble")) document.querySelector("#result > .trouble")?.remove();
  });
  question.addEventListener("input", later(show, 300));
  question.querySelectorAll("[data-plain]").forEach((each) => (each.hidden = true));
  document.querySelector("#hint").hidden = false;
  show();
  document.querySelector("#sql").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) question.requestSubmit();
  });
}

document.querySelectorAll("form[data-live]").forEach((form) => {
  const show = live(form, form.dataset.live, document.querySelector(form.dataset.place));
  form.addEventListener("input", later(show, 300));
  form.querySelectorAll("[data-plain]").forEach((each) => (each.hidden = true));
  show();
});

const adding = document.querySelector("#add");
if (adding) {
  const place = document.querySelector("#odds");
  const show = later(live(adding, "/console/odds", place), 120);
  adding.querySelectorAll("[data-odds]").forEach((each) => each.addEventListener("input", show));
  const watch = new MutationObserver(() => {
    const said = place.querySelector("[data-epsilon]");
    if (!said) return;
    document.querySelector("#epsilon").textContent = said.dataset.epsilon;
    field(adding, "step").setAttribute("aria-valuetext", "ε " + said.dataset.epsilon);
  });
  watch.observe(place, { childList: true });
  const bounded = ["integer", "real", "date", "timestamp"];
  const needs = { low: bounded, high: bounded, keys: ["text", "integer", "date"], buy: bounded };
  const hints = { date: "YYYY-MM-DD", timestamp: "YYYY-MM-DD hh:mm" };
  adding.querySelectorAll("[data-kind]").forEach((each) => {
    const number = each.name.split(".")[1];
    const fit = () => {
      for (const [part, kinds] of Object.entries(needs)) {
        field(adding, part + "." + number).disabled = !kinds.includes(each.value);
      }
      const buys = field(adding, "buy." + number);
      if (buys.checked && !buys.disabled) {
        for (const part of ["low", "high", "keys"]) field(adding, part + "." + number).disabled = true;
      }
      for (const [part, word] of [["low", "lowest"], ["high", "highest"]]) {
        field(adding, part + "." + number).placeholder = hints[each.value] || word;
      }
    };
    each.addEventListener("change", fit);
    each.addEventListener("change", show);
    field(adding, "buy." + number).addEventListener("change", fit);
    fit();
  });
  const person = field(adding, "person");
  const mark = () => {
    field(adding, "rows").disabled = person.value === person.dataset.row;
    adding.querySelectorAll("[data-column]").forEach((each) => {
      each.classList.toggle("is-person", person.value === each.dataset.column && person.value !== "");
    });
  };
  person.addEventListener("change", mark);
  person.addEventListener("change", show);
  mark();
}

// -- results in place --------------------------------------------------------------------------------------------------

document.addEventListener("submit", async (event) => {
  const form = event.target, places = form.dataset.swap;
  if (!places) return;
  event.preventDefault();
  const button = event.submitter;
  if (form.getAttribute("aria-busy") === "true") return;
  form.setAttribute("aria-busy", "true");
  try {
    const address = button && button.hasAttribute("formaction") ? button.formAction : form.action;
    const response = await fetch(address, { method: "POST", body: body(form, button), redirect: "follow" });
    const page = parsed(await response.text());
    if (!page.querySelector(places.split(" ")[0])) {
      location.reload();
      return;
    }
    for (const place of places.split(" ")) {
      const found = page.querySelector(place);
      if (found) document.querySelector(place).replaceWith(found);
    }
    fresh(form);
    document.querySelector(places.split(" ")[0]).focus({ preventScroll: true });
    document.querySelector(places.split(" ")[0]).scrollIntoView({ block: "nearest", behavior: "smooth" });
    if (document.querySelector("#result > .trouble")) document.querySelector("#price").replaceChildren();
    else if (question) question.dispatchEvent(new Event("input"));
  } catch {
    const words = document.createElement("p");
    words.setAttribute("role", "alert");
    words.textContent = "The server could not be reached. Ask again: it is charged once.";
    document.querySelector(places.split(" ")[0]).replaceChildren(words);
  } finally {
    form.removeAttribute("aria-busy");
  }
});

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const text = document.querySelector(button.dataset.copy).textContent;
  const before = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(document.querySelector(button.dataset.copy));
    button.textContent = "Selected: press Ctrl + C";
  }
  setTimeout(() => (button.textContent = before), 1600);
});

// -- light and dark ----------------------------------------------------------------------------------------------------

const root = document.documentElement, toggle = document.querySelector("[data-theme-switch]");
let chosen = null;
try {
  chosen = localStorage.getItem("theme");
} catch {
  // A browser that keeps nothing follows the system.
}
if (chosen === "light" || chosen === "dark") root.dataset.theme = chosen;
if (toggle) {
  toggle.hidden = false;
  toggle.addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    try {
      localStorage.setItem("theme", root.dataset.theme);
    } catch {
      // As above.
    }
  });
}
