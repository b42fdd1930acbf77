// How far text and marks stand out from what is behind them, by WCAG's formula; the least of them first.
() => {
  const channels = (colour) => colour.match(/[\d.]+/g).map(Number);
  const light = ([r, g, b]) => {
    const part = (v) => ((v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const ratio = (one, other) => {
    const [high, low] = [light(one), light(other)].sort((a, b) => b - a);
    return (high + 0.05) / (low + 0.05);
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = channels(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const element of document.querySelectorAll("body *")) {
    const style = getComputedStyle(element);
    if (style.visibility !== "visible" || !element.getClientRects().length) continue;
    const inPlot = element.closest("svg") !== null;
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    const words = element.tagName + "." + element.getAttribute("class") + " " + element.textContent.slice(0, 40);
    if (own && element.tagName !== "title" && element.tagName !== "desc") {
      found.push({ kind: "text", words, ratio: ratio(channels(inPlot ? style.fill : style.color), behind(element)) });
    }
    const mark = inPlot && /\b(mark|bar|c\d|bad-mark|roof)\b/.test(element.getAttribute("class") ?? "");
    if (mark && element.tagName !== "text") {
      const colour = /\b(mark|bar)\b/.test(element.getAttribute("class")) && style.fill !== "none" ? style.fill : style.stroke;
      found.push({ kind: "mark", words, ratio: ratio(channels(colour), behind(element)) });
    }
  }
  return found.sort((a, b) => a.ratio - b.ratio);
}
