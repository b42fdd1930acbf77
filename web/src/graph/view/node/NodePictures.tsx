import { useSay } from "../../../language/say";
import { pictureAddress } from "../../run/asking";
import { picturesOf, previewOf } from "../in-run";
import { useSelected } from "../session-context";

/** What a node has made, or sees while it works. */
export function NodePictures({ id, title }: { id: string; title: string }) {
  const say = useSay();
  const preview = useSelected((state) => previewOf(state, id));
  const pictures = useSelected((state) => picturesOf(state, id));
  if (preview !== undefined) {
    return (
      <div className="graph-pictures" data-live="true">
        <img src={preview} alt={say("graph.preview", { node: title })} draggable={false} />
      </div>
    );
  }
  if (!pictures) return null;
  return (
    <div className="graph-pictures" data-many={pictures.length > 1}>
      {pictures.map((picture, index) => (
        <a
          key={`${picture.subfolder}/${picture.filename}`}
          className="nodrag"
          href={pictureAddress(picture)}
          target="_blank"
          rel="noreferrer"
        >
          <img
            src={pictureAddress(picture)}
            alt={say("graph.picture", { number: index + 1, node: title })}
            draggable={false}
          />
        </a>
      ))}
    </div>
  );
}
