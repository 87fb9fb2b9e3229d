(function () {
  "use strict";
  var columns = JSON.parse(document.getElementById("data").textContent).columns;
  var at = {};
  columns.forEach(function (column, place) { at[column.name] = place; });
  function value(column, row) { return column.numbers ? column.numbers[row] : column.texts[column.codes[row]]; }
  var rows = [];
  for (var number = 0; number < columns[0].codes.length; number++) {
    rows.push(columns.map(function (column) { return value(column, number); }));
  }
  var body = document.querySelector("tbody"), filters = document.querySelector(".filters");
  var heads = document.querySelectorAll("th"), selects = document.querySelectorAll("select");
  filters.hidden = false;

  function shown(cell, name, row) {
    if (cell === null || cell === "") { return ""; }
    if (name === "images_seen") { return (cell / 1e6).toLocaleString("en", { maximumSignificantDigits: 4 }) + "M"; }
    if (typeof cell !== "number") { return cell; }
    var text = name === "image_size" ? String(cell) : cell.toLocaleString("en", { maximumSignificantDigits: 4 });
    return name === "train_exaflops" && row[at.bound] ? "≥ " + text : text;
  }

  // A source that names repository, commit and file is a link.
  function source(cell, text) {
    var place = /^([\w.-]+\/[\w.-]+)@(\w+):([^\s;,()]+)/.exec(text);
    if (place) {
      var link = document.createElement("a");
      link.href = "https://github.com/" + place[1] + "/blob/" + place[2] + "/" + place[3];
      link.textContent = place[0];
      cell.appendChild(link);
    }
    cell.appendChild(document.createTextNode(place ? text.slice(place[0].length) : text));
  }

  var elements = rows.map(function (row) {
    var made = document.createElement("tr");
    row.forEach(function (cell, place) {
      var name = columns[place].name, td = document.createElement("td");
      if (name === "source" || name === "note") { td.className = "source"; source(td, cell); }
      else { td.textContent = shown(cell, name, row); td.className = columns[place].numbers ? "number" : ""; }
      if (!place) { td.title = cell; }
      made.appendChild(td);
    });
    return made;
  });
  var texts = rows.map(function (row) { return row.slice(0, at.source).join(" ").toLowerCase(); });

  selects.forEach(function (select) {
    var column = columns[at[select.dataset.column]];
    var found = Array.from(new Set(column.numbers || column.texts)).filter(function (v) { return v !== "" && v !== null; });
    found.sort(function (a, b) { return column.numbers ? a - b : a.localeCompare(b); });
    [""].concat(found).forEach(function (v) {
      var option = document.createElement("option");
      option.value = v;
      option.textContent = v === "" ? "all" : v;
      select.appendChild(option);
    });
  });

  function kept(row, text) {
    var words = document.getElementById("words").value.toLowerCase().split(/\s+/);
    var least = parseFloat(document.getElementById("least").value);
    return words.every(function (word) { return text.indexOf(word) >= 0; })
      && Array.from(selects).every(function (s) { return s.value === "" || String(row[at[s.dataset.column]]) === s.value; })
      && (isNaN(least) || row[at.in1k_top1] >= least)
      && (!document.getElementById("known").checked || (row[at.train_exaflops] !== null && !row[at.bound]))
      && (!document.getElementById("alone").checked || !row[at.teacher]);
  }

  var order = rows.map(function (row, place) { return place; });
  function draw() {
    var chosen = order.filter(function (place) { return kept(rows[place], texts[place]); });
    body.replaceChildren.apply(body, chosen.map(function (place) { return elements[place]; }));
    document.getElementById("count").textContent = chosen.length.toLocaleString("en") + " of " + rows.length.toLocaleString("en");
  }

  // What is missing stays last, whichever way a column is sorted.
  heads.forEach(function (head, place) {
    head.firstChild.addEventListener("click", function () {
      var up = head.getAttribute("aria-sort") !== "ascending";
      heads.forEach(function (other) { other.removeAttribute("aria-sort"); });
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      order.sort(function (i, j) {
        var a = rows[i][place], b = rows[j][place], none = function (v) { return v === null || v === ""; };
        if (none(a) || none(b)) { return none(a) - none(b); }
        var less = columns[place].numbers ? a - b : a.localeCompare(b);
        return up ? less : -less;
      });
      draw();
    });
  });
  filters.addEventListener("input", draw);
  draw();
})();
