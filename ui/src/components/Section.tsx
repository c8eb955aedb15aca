// A section of the page: a title that says what is shown, and an empty state that says why nothing is.
import type { ComponentChildren } from "preact";

interface SectionProps {
  id: string;
  title: string;
  note?: string | undefined;
  children: ComponentChildren;
}

export function Section({ id, title, note, children }: SectionProps) {
  return (
    <section id={id} aria-labelledby={`${id}-title`} tabIndex={-1}>
      <h2 id={`${id}-title`}>{title}</h2>
      {note && <p class="note">{note}</p>}
      {children}
    </section>
  );
}

export function Empty({ title, text }: { title: string; text: string }) {
  return (
    <div class="empty">
      <strong>{title}</strong>
      <p>{text}</p>
    </div>
  );
}
