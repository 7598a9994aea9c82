"""Elements of a page that a person can operate: the way of the Tab key through them, their sizes and places."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.async_api import Page

_MOST_STOPS = 400
_COMMON = """
globalThis.isShown = (element) => {
  const box = element.getBoundingClientRect();
  return element.checkVisibility({ visibilityProperty: true }) && box.width > 0 && box.height > 0;
};
globalThis.interactive = () => [...document.querySelectorAll(
  'a[href], button, input, select, textarea, summary, [tabindex="0"], [contenteditable=true], [role=button]'
)].filter((e) => isShown(e) && !e.disabled && e.id !== 'content' && !e.closest('[inert]')
  && (document.querySelector('dialog[open]') === null || e.closest('dialog[open]') !== null));
globalThis.nameOf = (e) => {
  const text = (e.getAttribute('aria-label') || e.labels?.[0]?.innerText || e.innerText || e.textContent || '').trim();
  return `${e.tagName.toLowerCase()} "${(text || e.getAttribute('class') || '').slice(0, 40)}"`;
};
null;
"""
_TO_THE_BEGINNING = """() => {
  const mark = document.createElement('span');
  mark.tabIndex = -1;
  document.body.prepend(mark);
  mark.focus();
  mark.remove();
}"""
_STOP = """() => {
  const e = document.activeElement;
  if (e === null || e === document.body || e === document.documentElement) return null;
  globalThis.stops ??= [];
  const isFirst = stops[0] === e;
  const before = stops.at(-1);
  if (!isFirst) stops.push(e);
  const shows = (each) => {
    const style = getComputedStyle(each);
    return style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2;
  };
  // A part of a drawing marks its own shape: an outline would be a box around all of it.
  const showsByStroke = (each) => {
    const shape = each.querySelector(':scope > rect:first-child');
    return shape !== null && parseFloat(getComputedStyle(shape).strokeWidth) >= 2;
  };
  const box = e.getBoundingClientRect();
  const [left, right] = [Math.max(0, box.left), Math.min(innerWidth, box.right)];
  const [top, bottom] = [Math.max(0, box.top), Math.min(innerHeight, box.bottom)];
  const points = [0.5, 0.1, 0.9].map((share) => document.elementFromPoint(left + (right - left) * share,
    top + (bottom - top) * share));
  return {
    isFirst,
    name: nameOf(e),
    isMarked: shows(e) || showsByStroke(e),
    isInView: right > left && bottom > top && points.some((each) =>
      each !== null && (e.contains(each) || each.contains(e))),
    isInOrder: before === undefined || isFirst || before === e
      || (before.compareDocumentPosition(e) & Node.DOCUMENT_POSITION_FOLLOWING) !== 0,
  };
}"""
_MISSED = """() => {
  const inGroup = (e) => e.tabIndex < 0 && stops.some((stop) =>
    stop !== e && stop.closest('[role=group], [role=listbox], [role=log], .ranks-grid')?.contains(e));
  const sameChoice = (e) => e.type === 'radio' && stops.some((stop) => stop.type === 'radio' && stop.name === e.name);
  return interactive().filter((e) => !stops.includes(e) && !inGroup(e) && !sameChoice(e)).map(nameOf);
}"""
_SMALL = """(least) => {
  const isText = (e) => e.tagName === 'A' || e.classList.contains('link');
  const inSentence = (e) => {
    const around = e.parentElement?.closest('p, li, dd, td, h2, .state, .logs-line');
    return isText(e) && around && around.textContent.trim().length > e.textContent.trim().length + 1;
  };
  const boxOf = (e) => {
    const boxes = [e, ...(e.labels ?? [])].map((each) => each.getBoundingClientRect());
    const [left, top] = [Math.min(...boxes.map((b) => b.left)), Math.min(...boxes.map((b) => b.top))];
    const [right, bottom] = [Math.max(...boxes.map((b) => b.right)), Math.max(...boxes.map((b) => b.bottom))];
    return { left, top, right, bottom, width: right - left, height: bottom - top };
  };
  const targets = interactive().filter((e) => !['SECTION', 'PRE', 'DIV', 'svg', 'MAIN'].includes(e.tagName)
    && !e.closest('svg') && !e.classList.contains('skip'));
  const boxes = new Map(targets.map((e) => [e, boxOf(e)]));
  const isSmall = (box) => box.width < least - 0.5 || box.height < least - 0.5;
  const centre = (box) => [(box.left + box.right) / 2, (box.top + box.bottom) / 2];
  // WCAG 2.5.8: a small target may stand alone, so that a circle around it meets no other target, nor its circle.
  const standsAlone = (e) => {
    const [x, y] = centre(boxes.get(e));
    return targets.every((other) => {
      const box = boxes.get(other);
      if (other === e || other.contains(e) || e.contains(other)) return true;
      const [dx, dy] = [Math.max(box.left - x, 0, x - box.right), Math.max(box.top - y, 0, y - box.bottom)];
      const [cx, cy] = centre(box);
      return Math.hypot(dx, dy) >= least / 2 && (!isSmall(box) || Math.hypot(cx - x, cy - y) >= least);
    });
  };
  return targets.filter((e) => isSmall(boxes.get(e)) && !inSentence(e)
      && !((isText(e) || e.type === 'checkbox') && standsAlone(e)))
    .map((e) => `${nameOf(e)}: ${boxes.get(e).width.toFixed(0)} × ${boxes.get(e).height.toFixed(0)}`);
}"""
_CUT = """() => {
  const found = [];
  const main = document.querySelector('#content') ?? document.documentElement;
  if (document.documentElement.scrollWidth > innerWidth) found.push(`page: ${document.documentElement.scrollWidth}`);
  if (main.scrollWidth > main.clientWidth) found.push(`content: ${main.scrollWidth} in ${main.clientWidth}`);
  const scrolls = (e) => ['auto', 'scroll'].includes(getComputedStyle(e).overflowX);
  const isInScroller = (e) => {
    for (let each = e.parentElement; each !== null && each !== main; each = each.parentElement)
      if (scrolls(each)) return true;
    return false;
  };
  for (const e of document.querySelectorAll('body *')) {
    if (!isShown(e) || e.closest('svg, .visually-hidden, .skip, .uplot, .cm-editor') !== null) continue;
    const ownText = [...e.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim() !== '');
    const box = e.getBoundingClientRect();
    if ((ownText || e.matches('button, input, select')) && (box.right > innerWidth + 1 || box.left < -1)
      && !isInScroller(e)) found.push(`beyond the edge: ${nameOf(e)}`);
    const style = getComputedStyle(e);
    const hides = (value) => ['hidden', 'clip'].includes(value);
    const isShortened = style.textOverflow === 'ellipsis';
    if (hides(style.overflowX) && e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 1 && !isShortened)
      found.push(`cut at the side: ${nameOf(e)}`);
    if (hides(style.overflowY) && e.scrollHeight > e.clientHeight + 2 && e.clientHeight > 1 && !isShortened)
      found.push(`cut below: ${nameOf(e)}`);
  }
  return found;
}"""


@dataclass(frozen=True)
class Stop:
    """An element that the Tab key reaches."""

    name: str
    is_marked: bool
    """The focus is visible."""
    is_in_view: bool
    is_in_order: bool
    """The element follows the stop before it in the document."""


@dataclass(frozen=True)
class Walk:
    """The way of the Tab key through a page."""

    stops: list[Stop]
    missed: list[str]
    """Elements that a mouse can operate and the Tab key does not reach."""


async def walk(page: "Page") -> Walk:
    """Press Tab from the beginning of a page to its end."""
    await page.evaluate(_COMMON + "globalThis.stops = [];")
    await page.evaluate(_TO_THE_BEGINNING)
    stops = list[Stop]()
    for _ in range(_MOST_STOPS):
        await page.keyboard.press("Tab")
        found: Any = await page.evaluate(_STOP)
        if found is None or found["isFirst"]:
            return Walk(stops, await page.evaluate(_MISSED))
        stops.append(Stop(found["name"], found["isMarked"], found["isInView"], found["isInOrder"]))
    raise AssertionError(f"the Tab key has no end after {_MOST_STOPS} elements: {[each.name for each in stops[-5:]]}")


async def small_targets(page: "Page", least_px: int = 24) -> list[str]:
    """Return what is too small for a finger. Links in sentences, and links and boxes that stand alone, may be small."""
    await page.evaluate(_COMMON)
    return await page.evaluate(_SMALL, least_px)


async def cut_off(page: "Page") -> list[str]:
    """Return what is wider than the page, beyond its edges, or hidden by the box around it."""
    await page.evaluate(_COMMON)
    return await page.evaluate(_CUT)
