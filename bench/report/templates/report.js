(function () {
  "use strict";
  var root = document.documentElement;

  // Theme: as the system says, until the reader chooses.
  var toggle = document.getElementById("theme");
  function dark() {
    return root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  }
  function named() { toggle.textContent = dark() ? "Light" : "Dark"; }
  toggle.hidden = false;
  toggle.addEventListener("click", function () { root.dataset.theme = dark() ? "light" : "dark"; named(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", named);
  named();

  // Tables: a click, Enter or Space on a heading sorts by its column; what is missing stays last.
  document.querySelectorAll("table").forEach(function (table) {
    table.querySelectorAll("thead button").forEach(function (button, index) {
      button.addEventListener("click", function () {
        var head = button.parentElement, body = table.tBodies[0];
        var up = head.getAttribute("aria-sort") !== "ascending";
        table.querySelectorAll("th").forEach(function (other) { other.removeAttribute("aria-sort"); });
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        var rows = Array.prototype.slice.call(body.rows);
        rows.sort(function (a, b) {
          var x = a.cells[index].dataset.sort, y = b.cells[index].dataset.sort;
          if (x === "" || y === "") { return x === y ? 0 : x === "" ? 1 : -1; }
          var nx = Number(x), ny = Number(y);
          var order = isNaN(nx) || isNaN(ny) ? x.localeCompare(y) : nx - ny;
          return up ? order : -order;
        });
        rows.forEach(function (row) { body.appendChild(row); });
      });
    });
  });

  // Runs behind a point: the link to them works without a script; Escape and Close go back to where the reader was.
  document.querySelectorAll(".runs .close").forEach(function (link) {
    link.addEventListener("click", function (event) { event.preventDefault(); history.back(); });
  });
  addEventListener("keydown", function (event) {
    if (event.key === "Escape" && location.hash.indexOf("#runs-") === 0) { history.back(); }
  });
  addEventListener("hashchange", function () {
    var runs = location.hash.indexOf("#runs-") === 0 && document.querySelector(location.hash + " .close");
    if (runs) { runs.focus(); }
  });

  // Names in figures: a click, Enter or Space hides what is drawn in the colour of a name, and shows it again.
  function middle(mark) {
    var box = mark.getBoundingClientRect();
    return [(box.left + box.right) / 2, (box.top + box.bottom) / 2];
  }
  document.querySelectorAll("figure svg .toggle").forEach(function (name) {
    var svg = name.closest("svg"), colour = '[style*="' + name.dataset.colour + '"]';
    function turn() {
      var hidden = name.getAttribute("aria-pressed") === "true", points = [];
      name.setAttribute("aria-pressed", String(!hidden));
      svg.querySelectorAll(colour).forEach(function (part) {
        if (name.contains(part)) { return; }
        part.classList.toggle("off", hidden);
        points.push(middle(part));
      });
      svg.querySelectorAll("a").forEach(function (area) {  // what answers to the pointer has no colour, but the place
        var here = middle(area.querySelector("use, path"));
        var covers = points.some(function (point) { return Math.hypot(point[0] - here[0], point[1] - here[1]) < 1; });
        if (covers) { area.classList.toggle("off", hidden); }
      });
    }
    name.setAttribute("role", "button");
    name.setAttribute("tabindex", "0");
    name.setAttribute("aria-label", "Show " + name.dataset.name);
    name.setAttribute("aria-pressed", "true");
    name.addEventListener("click", turn);
    name.addEventListener("keydown", function (event) {
      if (event.key === "Enter" || event.key === " ") { event.preventDefault(); turn(); }
    });
  });

  // Sections are folded; a link to one, or to what is in it, unfolds it.
  function unfold() {
    var target = location.hash && document.getElementById(location.hash.slice(1));
    for (var at = target; at; at = at.parentElement) { if (at.tagName === "DETAILS") { at.open = true; } }
    if (target) { target.scrollIntoView(); }
  }
  addEventListener("hashchange", unfold);
  unfold();

  function element(name, text, parent) {
    var made = document.createElement(name);
    made.textContent = text;
    parent.appendChild(made);
    return made;
  }

  var dialog = document.getElementById("record");
  dialog.addEventListener("click", function (event) { if (event.target === dialog) { dialog.close(); } });

  // Answers: a click shows the reasons; without a script the link leads to them.
  document.querySelectorAll("a.answer").forEach(function (link) {
    link.addEventListener("click", function (event) {
      var source = document.getElementById(link.hash.slice(1));
      if (!source || event.ctrlKey || event.metaKey || event.shiftKey) { return; }
      event.preventDefault();
      var body = dialog.querySelector("div"), list = source.parentElement;
      body.textContent = "";
      element("h3", list.previousElementSibling.textContent, body);
      Array.prototype.slice.call(source.children).forEach(function (part) {
        if (part.textContent) { element("p", part.textContent, body).className = part.className; }
      });
      dialog.showModal();
      dialog.scrollTop = 0;
    });
  });
})();
