// Questions to the server. A newer question ends the older one, so no answer comes out of order.

export class Refused extends Error {}

export async function ask(path, values = {}, signal = undefined) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    for (const one of Array.isArray(value) ? value : [value]) if (one !== undefined && one !== "") query.append(name, one);
  }
  const answer = await fetch(`${path}?${query}`, { signal });
  byId("lost").hidden = true;
  if (!answer.ok) throw new Refused("The server could not answer. Its terminal may say why.");
  const found = await answer.json();
  if (found.refused) throw new Refused(found.refused);
  return found;
}

// Asks `delay` milliseconds after a change, with the last values by then, and ends what was asked before. `show` is told whether
// nothing has changed since. What is slow waits until changes have `paused`, as an answer that nobody wants is computed all the same.
export function latest(path, delay, show, refuse, paused = false) {
  let timer, flying, wanted;
  const turn = async () => {
    timer = undefined;
    flying?.abort();
    const own = (flying = new AbortController()), values = wanted;
    try {
      const found = await ask(path, values, own.signal);
      if (own === flying) show(found, values === wanted);
    } catch (error) {
      if (own !== flying) return;
      if (error instanceof Refused) refuse(error.message);
      else lose();
    }
  };
  return (values) => {
    wanted = values;
    if (paused) clearTimeout(timer);
    if (paused || timer === undefined) timer = setTimeout(turn, delay);
  };
}

export function lose() {
  byId("lost").hidden = false;
}

// An element with text and children; text is never markup.
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

export function byId(id) {
  return document.getElementById(id);
}
