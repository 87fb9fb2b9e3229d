document.querySelectorAll("table").forEach(function (table) {
  table.querySelectorAll("th button").forEach(function (button, index) {
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
