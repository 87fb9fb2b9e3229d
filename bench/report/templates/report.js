(function () {
  "use strict";
  var root = document.documentElement;
  var data = JSON.parse(document.getElementById("data").textContent);

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

  // Figures: the point nearest to the pointer is explained; a click shows the records behind it.
  var NEAR = 16; // pixels
  var tip = document.getElementById("tip"), dialog = document.getElementById("record");

  function element(name, text, parent) {
    var made = document.createElement(name);
    made.textContent = text;
    if (parent) { parent.appendChild(made); }
    return made;
  }

  function show(point) {
    var body = dialog.querySelector("div");
    body.textContent = "";
    point[2].split("\n").forEach(function (line, index) { element(index ? "p" : "h3", line, body); });
    point[3].forEach(function (number) {
      var cell = data.cells[number];
      element("h4", cell.name, body);
      if (!cell.facts) {
        element("p", "Its record is beside this report: cells/" + cell.name + "/record.json", body);
        return;
      }
      var facts = element("dl", "", body);
      cell.facts.forEach(function (value, index) {
        if (value !== "") { element("dt", data.labels[index], facts); element("dd", value, facts); }
      });
      if (!cell.rows.length) { return; }
      var frame = element("div", "", body), table = element("table", "", frame);
      frame.className = "scroll";
      var head = table.createTHead().insertRow();
      data.columns.forEach(function (text) { element("th", text, head).scope = "col"; });
      var rows = table.createTBody();
      cell.rows.forEach(function (row) {
        var line = rows.insertRow();
        row.forEach(function (text) { line.insertCell().textContent = text; });
      });
    });
    if (!point[3].length) { element("p", "No single record lies behind this point.", body); }
    dialog.showModal();
    dialog.scrollTop = 0;
  }
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

  document.querySelectorAll("figure").forEach(function (figure) {
    var points = data.points[figure.id], picture = figure.querySelector(".picture"), svg = figure.querySelector("svg");
    if (!points || !points.length) { return; }
    var ring = document.createElementNS(svg.namespaceURI, "circle");
    var view = svg.viewBox.baseVal, current = -1, byKey = false; // a point chosen by key stays when the pointer moves off
    ring.setAttribute("class", "ring");
    ring.setAttribute("r", "9");
    svg.appendChild(ring);
    picture.tabIndex = 0;

    function select(number) {
      current = number;
      ring.style.display = tip.style.display = number < 0 ? "none" : "block";
      picture.style.cursor = number < 0 ? "" : "pointer";
      if (number < 0) { return; }
      var point = points[number], box = svg.getBoundingClientRect();
      ring.setAttribute("cx", point[0] * view.width);
      ring.setAttribute("cy", point[1] * view.height);
      tip.textContent = point[2];
      var x = box.left + point[0] * box.width, y = box.top + point[1] * box.height;
      var left = Math.min(Math.max(8, x + 14), innerWidth - tip.offsetWidth - 8);
      var top = y - tip.offsetHeight - 14 < 8 ? y + 14 : y - tip.offsetHeight - 14;
      tip.style.left = left + "px";
      tip.style.top = top + "px";
    }

    function nearest(event) {
      var box = svg.getBoundingClientRect(), best = -1, least = NEAR * NEAR;
      points.forEach(function (point, index) {
        var dx = box.left + point[0] * box.width - event.clientX, dy = box.top + point[1] * box.height - event.clientY;
        if (dx * dx + dy * dy < least) { least = dx * dx + dy * dy; best = index; }
      });
      return best;
    }

    picture.addEventListener("pointermove", function (event) {
      var found = nearest(event);
      if (found >= 0 || !byKey) { byKey = false; select(found); }
    });
    picture.addEventListener("pointerleave", function () { if (!byKey) { select(-1); } });
    picture.addEventListener("scroll", function () { if (!byKey) { select(-1); } });
    picture.addEventListener("blur", function () { byKey = false; select(-1); });
    picture.addEventListener("click", function (event) {
      var found = nearest(event);
      if (found >= 0) { show(points[found]); }
    });
    picture.addEventListener("keydown", function (event) {
      var step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (step) { byKey = true; event.preventDefault(); select((current + step + points.length) % points.length); }
      if (event.key === "Enter" && current >= 0) { event.preventDefault(); show(points[current]); }
      if (event.key === "Escape") { select(-1); }
    });
    select(-1);
  });
  addEventListener("scroll", function () { tip.style.display = "none"; }, { passive: true });
})();
