// Formulas are rendered in the browser by KaTeX, which is kept beside this file: the site works without a network.
function renderFormulas() {
  document.querySelectorAll(".arithmatex").forEach((node) =>
    renderMathInElement(node, {
      delimiters: [
        { left: "\\(", right: "\\)", display: false },
        { left: "\\[", right: "\\]", display: true },
      ],
      throwOnError: false,
    })
  )
}
if (typeof document$ !== "undefined") document$.subscribe(renderFormulas)
else document.addEventListener("DOMContentLoaded", renderFormulas)
