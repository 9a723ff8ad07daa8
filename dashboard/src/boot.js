// Starts the program of the pages and wakes their islands. A page is complete without it.
(() => {
  const { script, program } = document.currentScript.dataset;
  const parsed = new Promise((resolve) => {
    if (document.readyState === "loading") {
      document.addEventListener("DOMContentLoaded", resolve, { once: true });
    } else {
      resolve();
    }
  });
  const wake = (root, module) => {
    for (const island of root.querySelectorAll("leptos-island:not([data-awake])")) {
      const hydrate = module[island.dataset.component];
      if (hydrate) {
        island.dataset.awake = "";
        hydrate(island);
      }
    }
  };
  import(script)
    .then(async (module) => {
      await module.default({ module_or_path: program });
      // Loaded and compiled while the document was still being read.
      await parsed;
      module.start();
      document.addEventListener("nightshift:swapped", (event) => wake(event.target, module));
      wake(document, module);
      document.documentElement.dataset.awake = "";
    })
    .catch((error) => console.error("The program of the pages did not start:", error));
})();
