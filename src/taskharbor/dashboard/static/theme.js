// Sets the theme before anything is painted. "auto" follows the system.
try {
  const theme = localStorage.getItem("taskharbor-theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch { /* a browser may forbid storage: then the system decides */ }
document.documentElement.classList.add("js");
