// A page is painted whole (base.html); one whose line stalls or breaks half-way shows after a while what has come of it.
const PATIENCE_MS = 8000;

setTimeout(() => { if (!document.getElementById("whole")) document.querySelector("link[rel=expect]")?.remove(); }, PATIENCE_MS);
