// A button on every block of code that copies it, without the prompts and the output of a Python session.
"use strict";
document.addEventListener("DOMContentLoaded", () => {
  if (!navigator.clipboard) return; // an insecure origin
  for (const block of document.querySelectorAll("div.highlight-python, div.highlight-sh, div.highlight-toml, div.highlight-pycon")) {
    const pre = block.querySelector("pre");
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "copy";
    button.setAttribute("aria-label", "Copy this code");
    button.addEventListener("click", async () => {
      let text = pre.innerText;
      if (block.classList.contains("highlight-pycon")) {
        text = text.split("\n").filter((line) => /^(>>>|\.\.\.)/.test(line)).map((line) => line.slice(4)).join("\n");
      }
      await navigator.clipboard.writeText(text);
      button.textContent = "copied";
      setTimeout(() => { button.textContent = "copy"; }, 1500);
    });
    block.querySelector(".highlight").append(button);
  }
});
