// What the copy button of a block takes: statements without prompts and results, so that they can be pasted and run.
(function () {
  function statements(text) {
    const kept = [];
    for (const line of text.split("\n")) {
      const indented = /^ /.test(kept[kept.length - 1] || "");
      if (/^>>>( |$)/.test(line)) {
        if (indented) kept.push(""); // an interactive Python wants an empty line after an indented block
        kept.push(line.slice(4));
      } else if (/^\.\.\.( |$)/.test(line)) kept.push(line.slice(4));
    }
    return kept.join("\n") + "\n";
  }

  function commands(text) {
    const kept = [];
    for (const line of text.split("\n")) {
      if (line.startsWith("$ ")) kept.push(line.slice(2));
      else if (/\\$/.test(kept[kept.length - 1] || "")) kept.push(line);
    }
    return kept.join("\n") + "\n";
  }

  // Before the theme's own listener, which prefers data-clipboard-text to the text of the block.
  document.addEventListener(
    "click",
    function (event) {
      const button = event.target instanceof Element && event.target.closest("[data-clipboard-target]");
      if (!button) return;
      const text = document.querySelector(button.dataset.clipboardTarget).textContent;
      if (/^>>> /m.test(text)) button.dataset.clipboardText = statements(text);
      else if (/^\$ /.test(text)) button.dataset.clipboardText = commands(text);
    },
    true,
  );
})();
